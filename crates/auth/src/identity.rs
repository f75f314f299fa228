//! The job's identity: a key pair that exactly the processes of a job have, and TLS with it.
//!
//! An Ed25519 key is derived from the job's secret (HKDF-SHA256, RFC 5869). Both ends of a connection present it as a
//! raw public key (RFC 7250) and accept no other. There are no names, dates or authorities to be deceived about. Only
//! TLS 1.3 is used, and every connection agrees on fresh keys: sessions are not resumed, and no early data is sent.
//! Recorded traffic stays secret even if the secret leaks later.
//!
//! A key identifies the job and not the rank; two processes exchange their ranks inside.

use std::fmt;
use std::sync::Arc;

use hkdf::Hkdf;
use hmac::{Hmac, Mac};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{AlwaysResolvesClientRawPublicKeys, Resumption};
use rustls::crypto::{CryptoProvider, ring, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{
    CertificateDer, PrivatePkcs8KeyDer, ServerName, SubjectPublicKeyInfoDer, UnixTime,
};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{AlwaysResolvesServerRawPublicKeys, NoServerSessionStorage};
use rustls::sign::{CertifiedKey, SigningKey};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, Error,
    PeerIncompatible, ServerConfig, SignatureScheme,
};
use secret::{Secret, scrubbed};
use sha2::Sha256;

/// The key that a process of a job presents and demands from others.
#[derive(Clone)]
pub struct Identity {
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
    first_ids: FirstIds,
}

/// The connection IDs with which processes of a job address the first packets of a QUIC connection.
///
/// An ID is a mark, a nonce and a code. The mark is the same in all IDs of the job, so that a filter in the kernel can
/// tell them. The code proves the job's secret for the nonce.
#[derive(Clone)]
pub struct FirstIds {
    key: Secret,
    mark: [u8; MARK_LEN],
}

impl FirstIds {
    fn new(key: Secret) -> Self {
        let mut ids = Self { key, mark: [0; MARK_LEN] };
        let code: [u8; 32] = scrubbed(|| ids.mac(b"mark").finalize().into_bytes().into());
        ids.mark.copy_from_slice(&code[..MARK_LEN]);
        ids
    }

    /// First bytes of each ID. Who has seen a connection begin knows them.
    pub fn mark(&self) -> [u8; MARK_LEN] {
        self.mark
    }

    /// Makes an ID from random bytes.
    pub fn make(&self, nonce: [u8; 8]) -> [u8; FIRST_ID_LEN] {
        let mut id = [0; FIRST_ID_LEN];
        id[..MARK_LEN].copy_from_slice(&self.mark);
        id[MARK_LEN..][..nonce.len()].copy_from_slice(&nonce);
        let code: [u8; 32] = scrubbed(|| self.mac(&nonce).finalize().into_bytes().into());
        id[FIRST_ID_LEN - CODE_LEN..].copy_from_slice(&code[..CODE_LEN]);
        id
    }

    /// True if a process of the job has made the ID. IDs without the mark cost no hash.
    pub fn is_made(&self, id: &[u8]) -> bool {
        let Some(rest) = id.strip_prefix(&self.mark) else { return false };
        let Some((nonce, code)) = rest.split_at_checked(FIRST_ID_LEN - MARK_LEN - CODE_LEN) else {
            return false;
        };
        let is_right = || self.mac(nonce).verify_truncated_left(code).is_ok();
        code.len() == CODE_LEN && scrubbed(is_right)
    }

    fn mac(&self, message: &[u8]) -> Hmac<Sha256> {
        let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(self.key.expose()) else {
            unreachable!("HMAC takes keys of any length");
        };
        mac.update(message);
        mac
    }
}

impl Identity {
    /// Derives the identity from the secret of the job with this number.
    pub fn of(secret: &Secret, job: u64) -> Self {
        let provider = Arc::new(provider());
        let seed = derived(secret, job, b"identity ed25519");
        let key = scrubbed(|| load(&provider, &seed));
        let Some(public) = key.public_key().map(SubjectPublicKeyInfoDer::into_owned) else {
            unreachable!("an Ed25519 key has a public half");
        };
        let shown = CertificateDer::from(public.to_vec());
        let own = Arc::new(CertifiedKey::new(vec![shown], key));
        let wanted = Arc::new(JobKeyVerifier { public, provider: provider.clone() });
        Self {
            client: Arc::new(client(provider.clone(), own.clone(), wanted.clone())),
            server: Arc::new(server(provider, own, wanted)),
            first_ids: FirstIds::new(derived(secret, job, b"first connection id")),
        }
    }

    /// Connection IDs of first packets over QUIC.
    pub fn first_ids(&self) -> FirstIds {
        self.first_ids.clone()
    }

    /// TLS configuration of the initiator.
    pub fn client(&self) -> Arc<ClientConfig> {
        self.client.clone()
    }

    /// TLS configuration of the acceptor.
    pub fn server(&self) -> Arc<ServerConfig> {
        self.server.clone()
    }

    /// Server name that a client asks for: it is not sent, and nobody checks it.
    pub fn name() -> ServerName<'static> {
        let Ok(name) = ServerName::try_from(NAME) else { unreachable!("a name of letters") };
        name
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity").finish_non_exhaustive()
    }
}

/// A verifier that accepts the job's key and no other.
struct JobKeyVerifier {
    public: SubjectPublicKeyInfoDer<'static>,
    provider: Arc<CryptoProvider>,
}

impl JobKeyVerifier {
    fn check(&self, shown: &CertificateDer<'_>, more: &[CertificateDer<'_>]) -> Result<(), Error> {
        if more.is_empty() && shown.as_ref() == self.public.as_ref() {
            Ok(())
        } else {
            Err(CertificateError::ApplicationVerificationFailure.into())
        }
    }

    fn check_signature(
        &self,
        message: &[u8],
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature_with_raw_key(message, &self.public, signed, algorithms)
    }
}

impl fmt::Debug for JobKeyVerifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JobKeyVerifier")
    }
}

impl ServerCertVerifier for JobKeyVerifier {
    fn verify_server_cert(
        &self,
        shown: &CertificateDer<'_>,
        more: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.check(shown, more).map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(PeerIncompatible::Tls12NotOfferedOrEnabled.into())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        _: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.check_signature(message, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

impl ClientCertVerifier for JobKeyVerifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        shown: &CertificateDer<'_>,
        more: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.check(shown, more).map(|()| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(PeerIncompatible::Tls12NotOffered.into())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        _: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.check_signature(message, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

/// Returns a provider with one key exchange and two ciphers: first the one with CPU instructions, then the one for
/// CPUs without.
fn provider() -> CryptoProvider {
    CryptoProvider {
        cipher_suites: vec![
            ring::cipher_suite::TLS13_AES_128_GCM_SHA256,
            ring::cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
        ],
        kx_groups: vec![ring::kx_group::X25519],
        ..ring::default_provider()
    }
}

fn client(
    provider: Arc<CryptoProvider>,
    own: Arc<CertifiedKey>,
    wanted: Arc<JobKeyVerifier>,
) -> ClientConfig {
    let builder = ClientConfig::builder_with_provider(provider);
    let Ok(builder) = builder.with_protocol_versions(VERSIONS) else {
        unreachable!("the provider has ciphers of TLS 1.3");
    };
    let builder = builder.dangerous().with_custom_certificate_verifier(wanted);
    let mut config =
        builder.with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(own)));
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.enable_sni = false;
    config.resumption = Resumption::disabled();
    config
}

fn server(
    provider: Arc<CryptoProvider>,
    own: Arc<CertifiedKey>,
    wanted: Arc<JobKeyVerifier>,
) -> ServerConfig {
    let builder = ServerConfig::builder_with_provider(provider);
    let Ok(builder) = builder.with_protocol_versions(VERSIONS) else {
        unreachable!("the provider has ciphers of TLS 1.3");
    };
    let builder = builder.with_client_cert_verifier(wanted);
    let mut config =
        builder.with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(own)));
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    config
}

/// Derives a key of a job for one purpose.
pub(crate) fn derived(secret: &Secret, job: u64, purpose: &[u8]) -> Secret {
    let label = [purpose, &job.to_le_bytes()].concat();
    Secret::made(|key| {
        let Ok(()) = Hkdf::<Sha256>::new(Some(SALT), secret.expose()).expand(&label, key) else {
            unreachable!("32 bytes are one block");
        };
    })
}

/// Loads a private key, which the provider holds from then on.
fn load(provider: &CryptoProvider, seed: &Secret) -> Arc<dyn SigningKey> {
    // PKCS #8 (RFC 8410 §7). The provider clears the bytes that it is given.
    let pkcs8 = PrivatePkcs8KeyDer::from([PKCS8_ED25519, seed.expose()].concat());
    let Ok(key) = provider.key_provider.load_private_key(pkcs8.into()) else {
        unreachable!("any 32 bytes are an Ed25519 key");
    };
    key
}

/// Length of the ID of a first packet: the longest of QUIC (RFC 9000 §17.2).
pub const FIRST_ID_LEN: usize = 20;
/// Part of it that is the same in all IDs of a job.
pub const MARK_LEN: usize = 4;
/// Part of it that proves the secret.
const CODE_LEN: usize = 8;
/// Protocol and version inside TLS.
pub const ALPN: &[u8] = b"canele/1";
const SALT: &[u8] = b"canele/1";
const NAME: &str = "canele";
const VERSIONS: &[&rustls::SupportedProtocolVersion] = &[&rustls::version::TLS13];
/// PKCS #8 header: a sequence of version 0, the algorithm 1.3.101.112, and 32 bytes that follow.
const PKCS8_ED25519: &[u8] =
    &[0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20];

#[cfg(test)]
mod tests {
    use rustls::{ClientConnection, Connection, ProtocolVersion, ServerConnection};

    use super::*;

    fn identity(secret: u8, job: u64) -> Identity {
        Identity::of(&[secret; 32].into(), job)
    }

    fn seed(secret: u8, job: u64) -> Secret {
        derived(&[secret; 32].into(), job, b"identity ed25519")
    }

    /// Two connected TLS ends.
    struct TlsPair {
        ends: [Connection; 2],
    }

    impl TlsPair {
        fn new(client: Arc<ClientConfig>, server: Arc<ServerConfig>) -> Self {
            let client = ClientConnection::new(client, Identity::name()).unwrap();
            let server = ServerConnection::new(server).unwrap();
            Self { ends: [client.into(), server.into()] }
        }

        /// Exchanges bytes until both handshakes are complete or one fails.
        fn meet(&mut self) -> Result<(), Error> {
            while self.ends.iter().any(|end| end.wants_write()) {
                for from in 0..2 {
                    let mut bytes = Vec::new();
                    while self.ends[from].wants_write() {
                        self.ends[from].write_tls(&mut bytes).unwrap();
                    }
                    let mut rest = &bytes[..];
                    while !rest.is_empty() {
                        self.ends[1 - from].read_tls(&mut rest).unwrap();
                        self.ends[1 - from].process_new_packets()?;
                    }
                }
            }
            assert!(self.ends.iter().all(|end| !end.is_handshaking()));
            Ok(())
        }
    }

    #[test]
    fn processes_of_a_job_connect_with_fresh_keys() {
        let (one, other) = (identity(7, 3), identity(7, 3));
        let mut ends = TlsPair::new(one.client(), other.server());
        ends.meet().unwrap();
        let bindings = ends.ends.each_ref().map(|end| {
            assert_eq!(end.protocol_version(), Some(ProtocolVersion::TLSv1_3));
            assert_eq!(end.alpn_protocol(), Some(ALPN));
            assert_eq!(end.peer_certificates().map(<[_]>::len), Some(1));
            end.export_keying_material([0; 32], b"EXPORTER-Channel-Binding", None).unwrap()
        });
        assert_eq!(bindings[0], bindings[1]);
        let Connection::Client(client) = &ends.ends[0] else { unreachable!() };
        assert_eq!(client.tls13_tickets_received(), 0);
        let mut again = TlsPair::new(one.client(), other.server());
        again.meet().unwrap();
        let fresh = again.ends[0]
            .export_keying_material([0; 32], b"EXPORTER-Channel-Binding", None)
            .unwrap();
        assert_ne!(bindings[0], fresh, "keys are fresh each time");
        assert_eq!(again.ends[0].handshake_kind(), Some(rustls::HandshakeKind::Full));
    }

    #[test]
    fn other_secrets_and_other_jobs_are_refused_by_both_ends() {
        let own = identity(7, 3);
        let refused = Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure);
        for other in [identity(8, 3), identity(7, 4)] {
            let met = TlsPair::new(own.client(), other.server()).meet();
            assert_eq!(met, Err(refused.clone()), "by the client");
            // A client that trusts everybody must still present a key that it does not have.
            let mut credulous = (*own.client()).clone();
            credulous.client_auth_cert_resolver = other.client().client_auth_cert_resolver.clone();
            let met = TlsPair::new(Arc::new(credulous), own.server()).meet();
            assert_eq!(met, Err(refused.clone()), "by the server");
        }
    }

    #[test]
    fn a_client_without_a_key_and_one_with_a_copy_of_the_public_half_are_refused() {
        let own = identity(7, 3);
        let mut keyless = (*own.client()).clone();
        keyless.client_auth_cert_resolver = Arc::new(NoKey);
        let met = TlsPair::new(Arc::new(keyless), own.server()).meet();
        assert_eq!(met, Err(Error::NoCertificatesPresented));
        let public = load(&provider(), &seed(7, 3)).public_key().unwrap().to_vec();
        let shown = vec![CertificateDer::from(public)];
        let forged = Arc::new(CertifiedKey::new(shown, load(&provider(), &[9; 32].into())));
        let mut copied = (*own.client()).clone();
        copied.client_auth_cert_resolver = Arc::new(AlwaysResolvesClientRawPublicKeys::new(forged));
        let met = TlsPair::new(Arc::new(copied), own.server()).meet();
        assert_eq!(met, Err(Error::InvalidCertificate(CertificateError::BadSignature)));
    }

    #[derive(Debug)]
    struct NoKey;

    impl rustls::client::ResolvesClientCert for NoKey {
        fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
            None
        }

        fn only_raw_public_keys(&self) -> bool {
            true
        }

        fn has_certs(&self) -> bool {
            false
        }
    }

    #[test]
    fn first_ids_are_of_one_job_and_whole() {
        let [ours, others] = [1, 2].map(|job| identity(7, job).first_ids());
        let id = ours.make([9; 8]);
        assert!(ours.is_made(&id) && !others.is_made(&id));
        assert!(ours.make([8; 8]).starts_with(&ours.mark()) && ours.mark() != others.mark());
        assert!((0..id.len()).all(|len| !ours.is_made(&id[..len])));
        assert!(!ours.is_made(&[&id[..], &[0]].concat()));
        for at in 0..id.len() {
            let mut altered = id;
            altered[at] ^= 1;
            assert!(!ours.is_made(&altered), "byte {at}");
        }
    }

    #[test]
    fn nothing_secret_is_printed() {
        let printed = format!("{:?}", identity(7, 3));
        assert_eq!(printed, "Identity { .. }");
        assert_eq!(seed(7, 3).expose(), seed(7, 3).expose());
        assert_ne!(seed(7, 3).expose(), seed(7, 4).expose());
    }
}
