//! TLS to the server, through a proxy that accepts TLS with a certificate created for the test.
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

use crate::support::{Database, reopened, server};

/// The message SSLRequest of PostgreSQL's protocol.
const SSL_REQUEST: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 47];

/// A proxy that ends TLS, and the certificate of the authority that signed its own.
struct TlsProxy {
    port: u16,
    authority: String,
    encrypted: Arc<AtomicU32>,
}

impl TlsProxy {
    /// A proxy whose certificate names this host.
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
                tokio::spawn(forward(client, acceptor.clone(), Arc::clone(&count)));
            }
        });
        Self { port, authority: authority.pem(), encrypted }
    }

    /// Options that require a certificate signed by one of these roots and naming the host.
    fn verified(&self, database: &Database, roots: &NamedTempFile) -> Options {
        Options { root_certificates: Some(roots.path().to_owned()), ..self.options(database, "verify-full") }
    }

    /// Options for the database behind the proxy, with this `sslmode`.
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

/// Forwards one connection: TLS on the client's side, none on the server's.
async fn forward(mut client: TcpStream, acceptor: TlsAcceptor, count: Arc<AtomicU32>) -> std::io::Result<()> {
    let mut request = [0; 8];
    client.read_exact(&mut request).await?;
    assert_eq!(request, SSL_REQUEST, "the client did not ask for TLS");
    client.write_all(b"S").await?;
    let mut client = acceptor.accept(client).await?;
    count.fetch_add(1, SeqCst);
    let url = server();
    let address = url.rsplit_once('@').and_then(|(_, rest)| rest.split('/').next()).unwrap();
    let mut server = TcpStream::connect(address).await?;
    copy_bidirectional(&mut client, &mut server).await?;
    Ok(())
}

async fn refusal(options: Options) -> String {
    Postgres::open(options).await.err().expect("the server must not be accepted").to_string()
}

fn file(text: &str) -> NamedTempFile {
    let mut file = NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file
}

#[tokio::test]
async fn every_connection_is_encrypted_with_sslmode_require() {
    let (database, proxy) = (Database::migrated().await, TlsProxy::named("elsewhere.example").await);

    let store = Postgres::open(proxy.options(&database, "require")).await.unwrap();

    assert!(proxy.encrypted.load(SeqCst) >= 2, "the pools' connections and the one that holds the instance id");
    store.close().await.unwrap();
}

#[tokio::test]
async fn certificate_is_verified_with_sslmode_verify_full_and_with_given_roots() {
    let (database, proxy) = (Database::migrated().await, TlsProxy::named("localhost").await);
    Postgres::open(proxy.verified(&database, &file(&proxy.authority))).await.unwrap().close().await.unwrap();

    let stranger = TlsProxy::named("localhost").await;
    let refused = refusal(proxy.verified(&database, &file(&stranger.authority))).await;
    assert!(refused.to_lowercase().contains("certificate"), "{refused}");

    for mode in ["", "?sslmode=require"] {
        let given = |roots: &NamedTempFile| {
            let url = format!("postgres://posthaste@localhost:{}/{}{mode}", proxy.port, database.name);
            Options { url: url.into(), ..proxy.verified(&database, roots) }
        };
        reopened(given(&file(&proxy.authority))).await.close().await.unwrap();
        let refused = refusal(given(&file(&stranger.authority))).await;
        assert!(refused.to_lowercase().contains("certificate"), "{mode}: {refused}");
        let unreadable = refusal(given(&file("no certificate"))).await;
        assert!(unreadable.contains("root certificates"), "{mode}: {unreadable}");
    }

    let misnamed = TlsProxy::named("elsewhere.example").await;
    let refused = refusal(misnamed.verified(&database, &file(&misnamed.authority))).await;
    assert!(refused.to_lowercase().contains("certificate"), "{refused}");
}

#[tokio::test]
async fn server_without_tls_is_refused_with_sslmode_require() {
    let database = Database::migrated().await;
    let mut options = database.options("one");
    options.url = format!("{}?sslmode=require", options.url.expose_secret()).into();

    let refused = refusal(options).await;

    assert!(refused.contains("TLS"), "{refused}");
}
