//! Keys of pairs of jobs, by key agreement.
//!
//! Each job has a pair of X25519 keys (RFC 7748), derived from its secret. Its processes tell others the public half. From
//! both halves follows one key of two jobs: the same on all their processes, whenever and wherever these meet. Nobody else
//! can compute it, though everybody may know the public halves.

use hkdf::Hkdf;
use secret::{Secret, scrubbed};
use sha2::Sha256;
use x25519_dalek::{X25519_BASEPOINT_BYTES, x25519};

use crate::identity::derived;

/// The key of a job for meetings with other jobs.
#[derive(Clone, Debug)]
pub struct JobKey {
    job: u64,
    private: Secret,
    public: PublicKey,
}

/// The public half of a job's key.
pub type PublicKey = [u8; 32];

impl JobKey {
    /// Derives the key from the secret of the job with this number.
    pub fn of(secret: &Secret, job: u64) -> Self {
        let private = derived(secret, job, b"meetings x25519");
        let public = scrubbed(|| x25519(*private.expose(), X25519_BASEPOINT_BYTES));
        Self { job, private, public }
    }

    /// The public half, which is no secret.
    pub fn public(&self) -> PublicKey {
        self.public
    }

    /// The key that this job shares with another one. `None` if the other's public key is one of the few that
    /// lead to the same key with every job (RFC 7748 §6.1).
    pub fn with(&self, job: u64, public: &PublicKey) -> Option<Secret> {
        let common = Secret::made(|common| *common = x25519(*self.private.expose(), *public));
        if common.expose() == &[0; Secret::LEN] {
            return None;
        }
        let mut ends = [(self.job, self.public), (job, *public)];
        ends.sort_unstable();
        let mut label = b"key of two jobs".to_vec();
        for (job, public) in ends {
            label.extend(job.to_le_bytes());
            label.extend(public);
        }
        Some(Secret::made(|key| {
            let Ok(()) = Hkdf::<Sha256>::new(None, common.expose()).expand(&label, key) else {
                unreachable!("32 bytes are one block");
            };
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(secret: u8, job: u64) -> JobKey {
        JobKey::of(&[secret; 32].into(), job)
    }

    #[test]
    fn both_jobs_find_the_same_key_and_a_third_another() {
        let (one, other, third) = (key(1, 10), key(2, 20), key(3, 30));
        let shared = one.with(20, &other.public()).unwrap();
        assert_eq!(other.with(10, &one.public()).unwrap().expose(), shared.expose());
        for wrong in [
            third.with(20, &other.public()),
            one.with(30, &third.public()),
            one.with(21, &other.public()),
            key(1, 11).with(20, &other.public()),
        ] {
            assert_ne!(wrong.unwrap().expose(), shared.expose());
        }
    }

    #[test]
    fn a_public_key_that_fixes_the_result_is_refused() {
        assert!(key(1, 10).with(20, &[0; 32]).is_none());
        let mut one = [0; 32];
        one[0] = 1;
        assert!(key(1, 10).with(20, &one).is_none());
    }
}
