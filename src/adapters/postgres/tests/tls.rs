//! Encryption, tried for real: a front before the server speaks TLS to whoever asks for it, with a certificate made for the case.
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use postgres::{Options, Postgres};
use rcgen::{CertificateParams, CertifiedIssuer, KeyPair};
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::PrivateKeyDer;
use secrecy::ExposeSecret;
use tempfile::NamedTempFile;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use crate::support::{Database, server};

/// What a client sends to ask for TLS (PostgreSQL's SSLRequest).
const ASK: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 47];

/// A front, and the certificate of who signed its own.
struct Front {
    port: u16,
    authority: String,
    encrypted: Arc<AtomicU32>,
}

impl Front {
    /// One whose certificate is made for this name.
    async fn named(name: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        let authority = CertifiedIssuer::self_signed(authority(), key).unwrap();
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new([name.to_owned()]).unwrap().signed_by(&key, &authority).unwrap();
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], PrivateKeyDer::try_from(key.serialize_der()).unwrap())
            .unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (port, encrypted) = (listener.local_addr().unwrap().port(), Arc::<AtomicU32>::default());
        let (acceptor, count) = (TlsAcceptor::from(Arc::new(config)), Arc::clone(&encrypted));
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(speak(client, acceptor.clone(), Arc::clone(&count)));
            }
        });
        Self { port, authority: authority.pem(), encrypted }
    }

    /// The database behind it, trusted only where one of these has signed it and it is made for the host.
    fn verified(&self, database: &Database, roots: &NamedTempFile) -> Options {
        Options { root_certificates: Some(roots.path().to_owned()), ..self.options(database, "verify-full") }
    }

    /// The database behind it, trusted so far.
    fn options(&self, database: &Database, mode: &str) -> Options {
        let url = format!("postgres://posthaste@localhost:{}/{}?sslmode={mode}", self.port, database.name);
        Options { url: url.into(), ..database.options("one") }
    }
}

fn authority() -> CertificateParams {
    let mut params = CertificateParams::default();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    params
}

/// One connection: TLS on this side, none on the server's.
async fn speak(mut client: TcpStream, acceptor: TlsAcceptor, count: Arc<AtomicU32>) -> std::io::Result<()> {
    let mut asked = [0; 8];
    client.read_exact(&mut asked).await?;
    assert_eq!(asked, ASK, "it speaks in the clear");
    client.write_all(b"S").await?;
    let mut client = acceptor.accept(client).await?;
    count.fetch_add(1, SeqCst);
    let url = server();
    let place = url.rsplit_once('@').and_then(|(_, rest)| rest.split('/').next()).unwrap();
    let mut server = TcpStream::connect(place).await?;
    copy_bidirectional(&mut client, &mut server).await?;
    Ok(())
}

async fn refusal(options: Options) -> String {
    Postgres::open(options).await.err().expect("nobody is to be trusted here").to_string()
}

fn file(text: &str) -> NamedTempFile {
    let mut file = NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file
}

#[tokio::test]
async fn all_of_it_is_encrypted_where_that_is_asked_for() {
    let (database, front) = (Database::migrated().await, Front::named("elsewhere.example").await);

    let store = Postgres::open(front.options(&database, "require")).await.unwrap();

    assert!(front.encrypted.load(SeqCst) >= 2, "the pool's connections and the one that holds the name");
    store.close().await.unwrap();
}

#[tokio::test]
async fn a_server_is_who_it_says_where_that_is_asked_for() {
    let (database, front) = (Database::migrated().await, Front::named("localhost").await);
    Postgres::open(front.verified(&database, &file(&front.authority))).await.unwrap().close().await.unwrap();

    let stranger = Front::named("localhost").await;
    let refused = refusal(front.verified(&database, &file(&stranger.authority))).await;
    assert!(refused.to_lowercase().contains("certificate"), "{refused}");

    let misnamed = Front::named("elsewhere.example").await;
    let refused = refusal(misnamed.verified(&database, &file(&misnamed.authority))).await;
    assert!(refused.to_lowercase().contains("certificate"), "{refused}");
}

#[tokio::test]
async fn a_server_without_encryption_is_refused_where_it_is_asked_for() {
    let database = Database::migrated().await;
    let mut options = database.options("one");
    options.url = format!("{}?sslmode=require", options.url.expose_secret()).into();

    let refused = refusal(options).await;

    assert!(refused.contains("TLS"), "{refused}");
}
