//! Where callers come in over TCP: each proves itself in time, and is carried then.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use driver::Refusal;
use driver::relay::{
    CHALLENGE_LEN, Detour, GATEWAY, NOBODY, PROOF_HEAD_LEN, Porter, REPLY_LEN, RESUME_LEN, Reply,
    Request, Session,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

use crate::connect_job::{self, Denial, Reached};
use crate::half_connection::{self, Leg};
use crate::{Desk, trunk};

/// Those who have not proved themselves yet.
#[derive(Default)]
pub(crate) struct Antechamber {
    inside: Mutex<Inside>,
}

/// Each in the order in which they came.
#[derive(Default)]
struct Inside {
    next: u64,
    silent: Callers,
    /// Those whose greeting is the job's, which take a round trip to prove themselves.
    greeted: Callers,
}

type Callers = BTreeMap<u64, (SocketAddr, AbortHandle)>;

impl Antechamber {
    /// Spawns what is done with the caller, which gets its number to [`leave`](Self::leave) by. In a crowd
    /// one has to go, who it was: of those that have not said a greeting if there are any, and of them the one
    /// that has been here longest. So a member has no more to hurry than its greeting, however far away it is.
    fn enter<F>(&self, from: SocketAddr, task: impl FnOnce(u64) -> F) -> Option<SocketAddr>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let mut inside = self.inside();
        let number = inside.next;
        inside.next += 1;
        let expelled = if inside.silent.len() + inside.greeted.len() >= UNPROVED_MAX {
            let longest = inside.silent.pop_first().or_else(|| inside.greeted.pop_first());
            longest.map(|(_, (address, task))| {
                task.abort();
                address
            })
        } else {
            None
        };
        // The task cannot leave before it has entered: that takes the lock.
        inside.silent.insert(number, (from, tokio::spawn(task(number)).abort_handle()));
        expelled
    }

    /// The caller has said a greeting of the job.
    fn greet(&self, number: u64) {
        let mut inside = self.inside();
        if let Some(caller) = inside.silent.remove(&number) {
            inside.greeted.insert(number, caller);
        }
    }

    /// The caller has proved itself or was turned away.
    fn leave(&self, number: u64) {
        let mut inside = self.inside();
        inside.silent.remove(&number);
        inside.greeted.remove(&number);
    }

    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Lets callers in, for ever.
pub(crate) async fn keep(listener: TcpListener, desk: Arc<Desk>) {
    loop {
        match listener.accept().await {
            Ok((stream, from)) => {
                let task = |number| admit(desk.clone(), stream, from, number);
                if let Some(expelled) = desk.antechamber.enter(from, task) {
                    desk.ledger.refuse(expelled, Refusal::Crowd);
                }
            }
            // For want of descriptors or memory, mostly; or the caller has left already.
            Err(_) => sleep(REST).await,
        }
    }
}

async fn admit(desk: Arc<Desk>, mut stream: TcpStream, from: SocketAddr, number: u64) {
    let greeted = || desk.antechamber.greet(number);
    let heard = timeout(PROOF_PATIENCE, hear(&desk.porter, &mut stream, greeted)).await;
    desk.antechamber.leave(number);
    match heard.unwrap_or(Err(Refusal::Slow)) {
        Ok((request, session)) if request.peer == GATEWAY => {
            // Who does not stay to hear it has no link.
            let _ = begin_link(&desk, stream, session, request.listeners).await;
        }
        Ok((request, _)) if request.peer == NOBODY => {
            let reply = Reply::PathCosts(trunk::path_costs(&desk, &request.via).await);
            // Who does not stay to hear it goes by what it knows.
            let _ = stream.write_all(&reply.emit()).await;
        }
        Ok((request, _)) => match half_connection::prepare(stream) {
            Ok((leg, _)) => serve(&desk, leg, from, &request).await,
            Err(_) => desk.ledger.refuse(from, Refusal::Closed),
        },
        Err(refusal) => desk.ledger.refuse(from, refusal),
    }
}

/// A gateway that has proved itself has a link from now on, and is called by it at these addresses.
async fn begin_link(
    desk: &Desk,
    mut stream: TcpStream,
    session: Session,
    called: Vec<SocketAddr>,
) -> io::Result<()> {
    half_connection::watch(&stream)?;
    stream.write_all(&Reply::Open { beyond: Detour::default() }.emit()).await?;
    desk.carrier.link(stream, session, called)
}

/// The request of a caller that has proved itself, and what is sealed from then on if it is a gateway;
/// `greeted` once its greeting is known to be the job's.
async fn hear(
    porter: &Porter,
    stream: &mut TcpStream,
    greeted: impl FnOnce(),
) -> Result<(Request, Session), Refusal> {
    let closed = |_: io::Error| Refusal::Closed;
    let mut hello = [0; RESUME_LEN];
    stream.read_exact(&mut hello).await.map_err(closed)?;
    let answer = porter.answer(&hello, nonce().map_err(closed)?)?;
    greeted();
    stream.write_all(&answer).await.map_err(closed)?;
    let mut head = [0; PROOF_HEAD_LEN];
    stream.read_exact(&mut head).await.map_err(closed)?;
    let mut sealed = vec![0; porter.check_proof(&hello, &answer, &head)?];
    stream.read_exact(&mut sealed).await.map_err(closed)?;
    let request = porter.check_request(&hello, &answer, &sealed)?;
    Ok((request, porter.session(&hello, &answer, false)))
}

/// Does what a member of the job asks for, and carries its connection to the end.
pub(crate) async fn serve(desk: &Arc<Desk>, mut caller: Leg, from: SocketAddr, request: &Request) {
    if request.peer == NOBODY {
        // Another gateway wanted the link, and has it.
        let _ = say(&mut caller, &Reply::PathCosts(Vec::new())).await;
        return;
    }
    let opened = match enter(desk) {
        Ok(permit) => connect_job::run(desk, request).await.map(|reached| (permit, reached)),
        Err(denial) => Err(denial),
    };
    match opened {
        Ok((_permit, Reached { leg, beyond })) => {
            if say(&mut caller, &Reply::Open { beyond }).await.is_ok() {
                let _carried = desk.ledger.begin();
                desk.carrier.carry(caller, leg, Arc::clone(&desk.ledger)).await;
            }
        }
        Err(denial) => {
            desk.ledger.deny(from, &denial);
            // Who does not stay to hear it will not miss it.
            let _ = say(&mut caller, &Reply::Refused(denial.to_string())).await;
        }
    }
}

fn enter(desk: &Desk) -> Result<OwnedSemaphorePermit, Denial> {
    desk.room.clone().try_acquire_owned().map_err(|_| Denial::Full)
}

async fn say(caller: &mut Leg, reply: &Reply) -> io::Result<()> {
    let bytes = reply.emit();
    match caller {
        Leg::Tcp(stream, _) => stream.write_all(&bytes).await,
        Leg::Trunk(end) => {
            end.reply(&bytes);
            Ok(())
        }
    }
}

/// Calls another gateway: what it replies, and what is sealed from then on.
pub(crate) async fn call(
    porter: &Porter,
    stream: &mut TcpStream,
    request: &Request,
) -> Result<(Reply, Session), String> {
    let lost = |error: io::Error| error.to_string();
    let hello = porter.hello(nonce().map_err(lost)?);
    stream.write_all(&hello).await.map_err(lost)?;
    let mut answer = [0; CHALLENGE_LEN];
    stream.read_exact(&mut answer).await.map_err(lost)?;
    let said = porter.ask(&hello, &answer, request).map_err(|refusal| refusal.to_string())?;
    stream.write_all(&said).await.map_err(lost)?;
    let mut reply = [0; REPLY_LEN];
    stream.read_exact(&mut reply).await.map_err(lost)?;
    let reply = Reply::parse(&reply).ok_or("its reply is none")?;
    Ok((reply, porter.session(&hello, &answer, true)))
}

fn nonce() -> io::Result<[u8; 32]> {
    let mut nonce = [0; 32];
    getrandom::fill(&mut nonce).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(nonce)
}

/// How long a caller may take to prove itself and ask.
const PROOF_PATIENCE: Duration = Duration::from_secs(5);
/// Callers at once that have not.
pub(crate) const UNPROVED_MAX: usize = 256;
/// How long the door is shut when nobody can be let in.
const REST: Duration = Duration::from_millis(100);
