//! Accepts callers over TCP: each must authenticate within a time limit before it is served.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use netpath::RelayInfo;
use rail::Refusal;
use relay::{
    CHALLENGE_LEN, GATEWAY, NOBODY, PROOF_HEAD_LEN, REPLY_LEN, RESUME_LEN, RelayHandshake, Reply,
    Request, Session,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

use crate::connect_job::{self, Denial, Reached};
use crate::half_connection::{self, HalfConnection};
use crate::{Shared, trunk};

/// Callers that have not authenticated yet.
#[derive(Default)]
pub(crate) struct UnprovenCallers {
    callers: Mutex<Callers>,
}

/// Unauthenticated callers, in the order of their arrival.
#[derive(Default)]
struct Callers {
    next: u64,
    without_hello: CallerMap,
    /// Callers that have sent the job's hello. They need another round trip to authenticate.
    with_hello: CallerMap,
}

type CallerMap = BTreeMap<u64, (SocketAddr, AbortHandle)>;

impl UnprovenCallers {
    /// Spawns the caller's task, which gets a number for [`leave`](Self::leave). If there are too many
    /// callers, one is expelled: the one that has waited longest, of those without a hello if there are any.
    /// So a member only has to send its hello quickly, however long its round trip is.
    fn enter<F>(&self, from: SocketAddr, task: impl FnOnce(u64) -> F) -> Option<SocketAddr>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let mut callers = self.callers();
        let number = callers.next;
        callers.next += 1;
        let expelled = if callers.without_hello.len() + callers.with_hello.len() >= UNPROVED_MAX {
            let longest =
                callers.without_hello.pop_first().or_else(|| callers.with_hello.pop_first());
            longest.map(|(_, (address, task))| {
                task.abort();
                address
            })
        } else {
            None
        };
        // The task cannot leave before it has entered, because that takes the lock.
        callers.without_hello.insert(number, (from, tokio::spawn(task(number)).abort_handle()));
        expelled
    }

    /// Notes that the caller has sent the job's hello.
    fn note_hello(&self, number: u64) {
        let mut callers = self.callers();
        if let Some(caller) = callers.without_hello.remove(&number) {
            callers.with_hello.insert(number, caller);
        }
    }

    /// Removes a caller that has authenticated or was refused.
    fn leave(&self, number: u64) {
        let mut callers = self.callers();
        callers.without_hello.remove(&number);
        callers.with_hello.remove(&number);
    }

    fn callers(&self) -> MutexGuard<'_, Callers> {
        self.callers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Accepts callers, for ever.
pub(crate) async fn accept_callers(listener: TcpListener, shared: Arc<Shared>) {
    loop {
        match listener.accept().await {
            Ok((stream, from)) => {
                let task = |number| admit(shared.clone(), stream, from, number);
                if let Some(expelled) = shared.unproven.enter(from, task) {
                    shared.account.refuse(expelled, Refusal::TooMany);
                }
            }
            // No descriptors or memory, usually; or the caller has already left.
            Err(_) => sleep(REST).await,
        }
    }
}

async fn admit(shared: Arc<Shared>, mut stream: TcpStream, from: SocketAddr, number: u64) {
    let on_hello = || shared.unproven.note_hello(number);
    let authenticated =
        timeout(PROOF_PATIENCE, authenticate(&shared.handshake, &mut stream, on_hello)).await;
    shared.unproven.leave(number);
    match authenticated.unwrap_or(Err(Refusal::Slow)) {
        Ok((request, session)) if request.peer == GATEWAY => {
            // A caller that leaves before the reply has no link.
            let _ = begin_link(&shared, stream, session, request.listeners).await;
        }
        Ok((request, _)) if request.peer == NOBODY => {
            let reply = Reply::PathCosts(
                trunk::path_costs(&shared, request.via.first().map_or(&[], Vec::as_slice)).await,
            );
            // A caller that leaves before the reply uses the costs it knows.
            let _ = stream.write_all(&reply.emit()).await;
        }
        Ok((request, _)) => match half_connection::prepare(stream) {
            Ok((half, _)) => serve(&shared, half, from, &request).await,
            Err(_) => shared.account.refuse(from, Refusal::Closed),
        },
        Err(refusal) => shared.account.refuse(from, refusal),
    }
}

/// Turns the connection of an authenticated gateway into a link, which then serves calls to its addresses.
async fn begin_link(
    shared: &Shared,
    mut stream: TcpStream,
    session: Session,
    called: Vec<SocketAddr>,
) -> io::Result<()> {
    half_connection::watch(&stream)?;
    stream.write_all(&Reply::Open { beyond: RelayInfo::default() }.emit()).await?;
    shared.carrier.link(stream, session, called)
}

/// Authenticates a caller and returns its request, with the session that seals further messages if it is a
/// gateway. Calls `on_hello` once its hello is known to be the job's.
async fn authenticate(
    handshake: &RelayHandshake,
    stream: &mut TcpStream,
    on_hello: impl FnOnce(),
) -> Result<(Request, Session), Refusal> {
    let closed = |_: io::Error| Refusal::Closed;
    let mut hello = [0; RESUME_LEN];
    stream.read_exact(&mut hello).await.map_err(closed)?;
    let answer = handshake.answer(&hello, nonce().map_err(closed)?)?;
    on_hello();
    stream.write_all(&answer).await.map_err(closed)?;
    let mut head = [0; PROOF_HEAD_LEN];
    stream.read_exact(&mut head).await.map_err(closed)?;
    let mut sealed = vec![0; handshake.check_proof(&hello, &answer, &head)?];
    stream.read_exact(&mut sealed).await.map_err(closed)?;
    let request = handshake.check_request(&hello, &answer, &sealed)?;
    Ok((request, handshake.session(&hello, &answer, false)))
}

/// Opens the connection that a member of the job requests, and relays it to its end.
pub(crate) async fn serve(
    shared: &Arc<Shared>,
    mut caller: HalfConnection,
    from: SocketAddr,
    request: &Request,
) {
    if request.peer == NOBODY {
        // The other gateway only wanted the link to be open.
        let _ = send_reply(&mut caller, &Reply::PathCosts(Vec::new())).await;
        return;
    }
    // A gateway passes its own ranks on to other sites, and others' only if it stands between two of these.
    let is_passed_on = !request.via.is_empty() && matches!(caller, HalfConnection::Trunk(_));
    let opened = match acquire_permit(shared) {
        Ok(_) if is_passed_on && !shared.is_transit => Err(Denial::TooFar { peer: request.peer }),
        Ok(permit) => connect_job::run(shared, request).await.map(|reached| (permit, reached)),
        Err(denial) => Err(denial),
    };
    match opened {
        Ok((_permit, Reached { half, beyond })) => {
            if send_reply(&mut caller, &Reply::Open { beyond }).await.is_ok() {
                let _carried = shared.account.begin();
                shared.carrier.carry(caller, half, Arc::clone(&shared.account)).await;
            }
        }
        Err(denial) => {
            shared.account.deny(from, &denial);
            // A caller that leaves before the reply does not need it.
            let _ = send_reply(&mut caller, &Reply::Refused(denial.to_string())).await;
        }
    }
}

fn acquire_permit(shared: &Shared) -> Result<OwnedSemaphorePermit, Denial> {
    shared.permits.clone().try_acquire_owned().map_err(|_| Denial::Full)
}

async fn send_reply(caller: &mut HalfConnection, reply: &Reply) -> io::Result<()> {
    let bytes = reply.emit();
    match caller {
        HalfConnection::Tcp(stream, _) => stream.write_all(&bytes).await,
        HalfConnection::Trunk(end) => {
            end.reply(&bytes);
            Ok(())
        }
    }
}

/// Sends a request to another gateway. Returns its reply and the session that seals further messages.
pub(crate) async fn call(
    handshake: &RelayHandshake,
    stream: &mut TcpStream,
    request: &Request,
) -> Result<(Reply, Session), String> {
    let lost = |error: io::Error| error.to_string();
    let hello = handshake.hello(nonce().map_err(lost)?);
    stream.write_all(&hello).await.map_err(lost)?;
    let mut answer = [0; CHALLENGE_LEN];
    stream.read_exact(&mut answer).await.map_err(lost)?;
    let proof = handshake.ask(&hello, &answer, request).map_err(|refusal| refusal.to_string())?;
    stream.write_all(&proof).await.map_err(lost)?;
    let mut reply = [0; REPLY_LEN];
    stream.read_exact(&mut reply).await.map_err(lost)?;
    let reply = Reply::parse(&reply).ok_or("its reply is none")?;
    Ok((reply, handshake.session(&hello, &answer, true)))
}

fn nonce() -> io::Result<[u8; 32]> {
    let mut nonce = [0; 32];
    getrandom::fill(&mut nonce).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(nonce)
}

/// Time that a caller may take to authenticate and send its request.
const PROOF_PATIENCE: Duration = Duration::from_secs(5);
/// Maximum number of unauthenticated callers.
pub(crate) const UNPROVED_MAX: usize = 256;
/// Pause after a failed `accept`.
const REST: Duration = Duration::from_millis(100);
