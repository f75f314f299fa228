//! A job in an interval as one line of JSON.

use boot::{RankWait, SentTo};
use serde_json::{Value, json};

use super::rates::{JobRates, RankActivity, RankRates};

/// Returns the line of an interval.
pub(super) fn line(rates: &JobRates) -> String {
    let facts = &rates.facts;
    let object = json!({
        "job": facts.job,
        "command": facts.command,
        "elapsed_s": facts.seconds,
        "hosts": facts.hosts,
        "ranks": rates.ranks.iter().map(rank).collect::<Vec<_>>(),
    });
    format!("{object}\n")
}

fn rank(rank: &RankRates) -> Value {
    let (state, waits) = match &rank.state {
        RankActivity::HasEnded => ("ended", &[][..]),
        RankActivity::NotInMpi => ("not in MPI", &[][..]),
        RankActivity::IsStopped => ("stopped", &[][..]),
        RankActivity::Waits(waits) => ("waits", &waits[..]),
        RankActivity::InMpi => ("in MPI", &[][..]),
        RankActivity::Computes => ("computes", &[][..]),
    };
    let mut object = json!({
        "world": rank.world,
        "rank": rank.rank,
        "host": rank.host,
        "site": rank.site,
        "state": state,
        "waits": waits.iter().map(wait).collect::<Vec<_>>(),
        "interval_s": null,
        "mpi_share": null,
        "sent": null,
        "queues": null,
    });
    if let Some(traffic) = &rank.traffic {
        object["interval_s"] = json!(traffic.seconds);
        object["mpi_share"] = json!(traffic.mpi_share);
        object["sent"] = traffic.sent.iter().map(sent).collect();
    }
    if let Some(queues) = &rank.queues {
        object["queues"] = json!({
            "posted_receives": queues.posted,
            "unexpected_messages": queues.unexpected,
            "unexpected_bytes": queues.unexpected_bytes,
            "unsent_messages": queues.queued,
            "links_down": queues.down,
        });
    }
    object
}

fn wait(wait: &RankWait) -> Value {
    json!({
        "call": wait.call,
        "place": wait.place,
        "for": wait.what,
        "quiet_s": wait.quiet_ms as f64 / 1e3,
    })
}

fn sent(sent: &SentTo) -> Value {
    json!({
        "to": sent.reach.name(),
        "rank_there": sent.rank,
        "messages": sent.messages,
        "bytes": sent.bytes,
        "retransmitted": sent.retransmitted,
        "round_trip_us": sent.round_trip_us,
    })
}

#[cfg(test)]
mod tests {
    use boot::{RankLoad, Reach};

    use super::super::rates::tests::{entry, job, sent};
    use super::*;

    #[test]
    fn an_interval_is_one_line_with_all_figures() {
        let counts = |at_us, messages, samples| RankLoad {
            at_us,
            samples,
            samples_in_mpi: samples / 2,
            unexpected: 2,
            sent: vec![sent((Reach::Far, 3), messages, 8 * messages, 1)],
            ..RankLoad::default()
        };
        let wait = RankWait { call: "MPI_Recv".into(), quiet_ms: 1500, ..RankWait::default() };
        let before = job(vec![entry(Some(counts(0, 5, 0)), Vec::new()), entry(None, Vec::new())]);
        let now =
            job(vec![entry(Some(counts(2_000_000, 9, 4)), vec![wait]), entry(None, Vec::new())]);
        let text = line(&JobRates::between(&before, &now));
        assert_eq!(text.lines().count(), 1);
        let object: Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&object["job"], &object["command"]), (&json!(7), &json!("./ring 5")));
        let rank = &object["ranks"][0];
        assert_eq!((&rank["state"], &rank["site"]), (&json!("waits"), &json!("here")));
        assert_eq!(rank["waits"][0]["quiet_s"], json!(1.5));
        assert_eq!((&rank["interval_s"], &rank["mpi_share"]), (&json!(2.0), &json!(0.5)));
        assert_eq!(rank["queues"]["unexpected_messages"], json!(2));
        let expected = json!({
            "to": "wan", "rank_there": 3, "messages": 4, "bytes": 32, "retransmitted": 0, "round_trip_us": 150,
        });
        assert_eq!(rank["sent"], json!([expected]));
        assert_eq!(
            (&object["ranks"][1]["sent"], &object["ranks"][1]["queues"]),
            (&Value::Null, &Value::Null)
        );
    }
}
