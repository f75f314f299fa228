//! Identity of a job: how its processes prove that they belong to it, and what encrypts their connections.
//!
//! All processes of a job share a secret. [`Credentials`] prove it with message codes over a plain connection, an
//! [`Identity`] with certificates in a TLS handshake. Nothing else is read from a connection before. A [`Keyring`] also
//! has the keys of processes of other jobs.
#![forbid(unsafe_code)]

mod channel;
mod credentials;
mod encryption;
mod handshake;
mod identity;
mod job_key;
mod keyring;

pub use channel::{Channel, refusal_in};
pub use credentials::{
    ANSWER_LEN, Answer, Binding, Caller, Credentials, ENCRYPTS_AT, HELLO_LEN, Hello, NOTE_LEN,
    Nonce, PROOF_LEN, SEAL_LEN,
};
pub use encryption::Encryption;
pub use handshake::{
    DECLINES, Handshake, HandshakeEnd, Opening, Outcome, Own, Step, VERDICT_LEN, answer_to, verdict,
};
pub use identity::{FIRST_ID_LEN, FirstIds, Identity, MARK_LEN};
pub use job_key::{JobKey, PublicKey};
pub use keyring::{Keyring, OtherJobs};
pub use secret::Secret;
