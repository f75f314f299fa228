//! Answers the launcher's requests for a report: the calls in which threads of this rank wait, for whom, and what is
//! unmatched, or its load.
//!
//! A thread of its own answers, so it also does while the application computes. It sleeps until it is asked.

use std::sync::{Arc, Mutex, Once, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use boot::{RankReport, RankWait, ReportRequest};
use connect::PeerName;
use engine::{PendingOp, Selector};
use progress::{AwaitedThing, Worker};
use tracing::debug;
use wire::PeerId;

use crate::context;
use crate::instance::Instance;
use crate::load;

/// Begins to answer for an instance, if the launcher asks for reports. A process that joins its job again answers by the
/// same thread.
pub(crate) fn begin(instance: &Arc<Instance>) {
    static CURRENT: Mutex<Weak<Instance>> = Mutex::new(Weak::new());
    static THREAD: Once = Once::new();
    let current = || CURRENT.lock().unwrap_or_else(PoisonError::into_inner);
    *current() = Arc::downgrade(instance);
    let Some(socket) = instance.job().take_report_socket() else { return };
    let reported = move |request: ReportRequest| {
        let instance = current().upgrade();
        instance.map_or_else(RankReport::default, |instance| report(&instance, request))
    };
    let answer = move || socket.serve(reported);
    THREAD.call_once(|| {
        let spawned = cpu::without_signals(|| {
            let thread = thread::Builder::new().name("canele-report".into());
            thread.stack_size(STACK_BYTES).spawn(answer)
        });
        if let Err(error) = spawned {
            debug!(%error, "no thread for reports");
        }
    });
}

fn report(instance: &Arc<Instance>, request: ReportRequest) -> RankReport {
    let load = request.watch.map(|watch| load::of(instance, watch));
    // Somebody who watches asks again soon.
    let patience = if load.is_some() { BRIEF_PATIENCE } else { PATIENCE };
    let mut report = RankReport { load, ..RankReport::default() };
    for vci in instance.all() {
        for waiting in vci.waiting_threads(patience) {
            let (call, place) = waiting.call.unwrap_or_default();
            let name = |peer| instance.peer_name(peer);
            let things: Vec<Thing> =
                waiting.awaited.iter().map(|thing| Thing::of(thing, instance, &name)).collect();
            let is_any = waiting.is_any || things.iter().any(|thing| thing.is_any);
            let texts: Vec<&str> = things.iter().map(|thing| thing.text.as_str()).collect();
            report.waits.push(RankWait {
                call,
                place,
                quiet_ms: waiting.quiet.as_millis() as u64,
                what: texts.join(if waiting.is_any { " or " } else { " and " }),
                is_any,
                ranks: ranks(
                    things.into_iter().flat_map(|thing| thing.peers),
                    is_any,
                    instance.size(),
                ),
            });
        }
        report.notes.extend(vci.look(|worker| notes(worker, instance)));
    }
    report
}

/// Returns the awaited ranks of this job of `size` processes. If any of the peers suffices and one is of another job, no
/// rank here can be blamed.
fn ranks(peers: impl Iterator<Item = PeerId>, is_any: bool, size: u32) -> Vec<u32> {
    let (ranks, others): (Vec<u32>, Vec<u32>) =
        peers.map(|peer| peer.0).partition(|number| *number < size);
    if is_any && !others.is_empty() { Vec::new() } else { ranks }
}

/// Returns lines about unmatched receives and messages, and about peers without a link.
fn notes(worker: &mut Worker, instance: &Instance) -> Vec<String> {
    let receives = worker.engine.unmatched_receives();
    let messages = worker.engine.unmatched_messages();
    let name = |peer| worker.peer_name(peer);
    let receives: Vec<String> = receives
        .iter()
        .map(|(peer, selector)| message(*peer, *selector, instance, &name).text)
        .collect();
    let messages: Vec<String> = messages
        .iter()
        .map(|(peer, context, message)| {
            let (tag, bytes) = (message.tag, message.bytes);
            let comm = instance.context_name(*context);
            format!("{bytes} bytes from {} with tag {tag} in {comm}", name(*peer))
        })
        .collect();
    let mut notes = Vec::new();
    notes.extend(list(["receive", "receives"], "without a message", &receives));
    notes.extend(list(["message", "messages"], "without a receive", &messages));
    let lost: Vec<String> =
        worker.peers_without_link().into_iter().map(|peer| name(peer).to_string()).collect();
    notes.extend(list(["link", "links"], "lost and not open again", &lost));
    notes
}

/// Returns a line with a number of things, and the first of them.
fn list([one, several]: [&str; 2], state: &str, things: &[String]) -> Option<String> {
    let more = if things.len() > LISTED { ", and more" } else { "" };
    let first = things.iter().take(LISTED).map(String::as_str).collect::<Vec<_>>().join("; ");
    let name = if things.len() == 1 { one } else { several };
    (!things.is_empty()).then(|| format!("{} {name} {state}: {first}{more}", things.len()))
}

/// A thing that a thread waits for, in words.
struct Thing {
    text: String,
    peers: Vec<PeerId>,
    /// True if one of the peers suffices.
    is_any: bool,
}

impl Thing {
    fn of(thing: &AwaitedThing, instance: &Instance, name: &dyn Fn(PeerId) -> PeerName) -> Self {
        let of_peer = |peer: &Option<PeerId>, text: &dyn Fn(&str) -> String| {
            let named = peer.map_or_else(|| "any rank".into(), |peer| name(peer).to_string());
            Self { text: text(&named), peers: Vec::from_iter(*peer), is_any: false }
        };
        match thing {
            AwaitedThing::Message(peer, selector)
            | AwaitedThing::Op(PendingOp::Receive { peer, selector }) => {
                message(*peer, *selector, instance, name)
            }
            AwaitedThing::Op(PendingOp::Arriving { peer, tag, bytes }) => {
                let rest = format!("the rest of a message of {bytes} bytes with tag {tag}");
                of_peer(peer, &|rank| format!("{rest} from {rank}"))
            }
            AwaitedThing::Op(PendingOp::Send { peer, context, tag, is_offered }) => {
                let comm = instance.context_name(*context);
                of_peer(peer, &|rank| match is_offered {
                    true => format!("{rank} to receive a message with tag {tag} in {comm}"),
                    false => format!("a message to {rank} with tag {tag} in {comm} to leave"),
                })
            }
            AwaitedThing::Op(PendingOp::Access { peer }) => {
                let text = |rank: &str| format!("{rank} to answer an access to its window or lock");
                // The rank answers by itself. A lock is granted once another rank, which is not known, gives it back.
                Self { peers: Vec::new(), ..of_peer(peer, &text) }
            }
            AwaitedThing::Members(context, peers) => {
                let names: Vec<String> =
                    peers.iter().take(LISTED).map(|peer| name(*peer).to_string()).collect();
                let more = if peers.len() > LISTED { " and more" } else { "" };
                let comm = instance.context_name(*context);
                let text = format!("{}{more} in a collective of {comm}", names.join(", "));
                Self { text, peers: peers.clone(), is_any: false }
            }
        }
    }
}

/// Describes a message that a receive or probe accepts.
fn message(
    peer: Option<PeerId>,
    selector: Selector,
    instance: &Instance,
    name: &dyn Fn(PeerId) -> PeerName,
) -> Thing {
    let Selector { context, source, tag } = selector;
    let comm = instance.context_name(context);
    let own = instance.own_peer();
    let others = || {
        let members = instance.members_of(context).unwrap_or_default();
        members.into_iter().filter(|member| *member != own).collect()
    };
    let from = match (peer, source) {
        (Some(peer), _) => name(peer).to_string(),
        (None, Some(source)) => format!("rank {source} of the communicator"),
        (None, None) => "any rank".to_owned(),
    };
    let tag = tag.map_or_else(|| "any tag".into(), |tag| format!("tag {tag}"));
    let text = match context::if_collective(context) {
        Some(_) => format!("{from} in a collective of {comm}"),
        None => format!("a message from {from} with {tag} in {comm}"),
    };
    Thing { text, peers: peer.map_or_else(others, |peer| vec![peer]), is_any: peer.is_none() }
}

/// Time that waiting threads have to say what they wait for.
const PATIENCE: Duration = Duration::from_millis(250);
/// The same for a report on the load, where a thread that does not sleep within this time counts as busy.
const BRIEF_PATIENCE: Duration = Duration::from_millis(40);
/// Things that a line lists.
const LISTED: usize = 4;
/// Stack of the thread.
const STACK_BYTES: usize = 128 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_is_awaited_only_if_no_other_job_can_help() {
        let of = |peers: &[u32], is_any| ranks(peers.iter().copied().map(PeerId), is_any, 3);
        assert_eq!(of(&[0, 2], true), [0, 2]);
        assert_eq!(of(&[0, 3], false), [0], "both are needed");
        assert_eq!(of(&[0, 3], true), [0; 0]);
        assert_eq!(of(&[4], false), [0; 0]);
    }
}
