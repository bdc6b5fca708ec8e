//! TLS to the server, with certificates created for the test.
use std::path::PathBuf;

use ports::Error;
use ports::partitions::PartitionNo;
use ports::partitions::wake::WakeUp;
use ports::probe::Probe;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use redis::{Durability, Redis, RedisOpenError, RedisStore};

use crate::server::Server;
use crate::store::notified;
use crate::support::{opened, options, prefix, store_options};

struct EncryptedServer {
    _server: Server,
    port: u16,
    folder: PathBuf,
}

impl EncryptedServer {
    /// A server whose certificate names this host.
    async fn named(name: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (ours, other) = (authority(), authority());
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new([name.to_owned()]).unwrap().signed_by(&key, &ours).unwrap();
        let files = [
            ("server.pem", certificate.pem()),
            ("key.pem", key.serialize_pem()),
            ("authority.pem", ours.pem()),
            ("other.pem", other.pem()),
        ];
        for (name, text) in files {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        let path = folder.path().to_owned();
        let (server, port) = Server::start_encrypted(folder, "server.pem", "key.pem").await;
        Self { _server: server, port, folder: path }
    }

    fn url(&self) -> String {
        format!("rediss://localhost:{}", self.port)
    }

    /// Options that trust the authority in this file.
    fn trusting(&self, file: &str) -> redis::Options {
        let mut options = options(&self.url(), &prefix(), "one");
        options.root_certificates = Some(self.folder.join(file));
        options
    }
}

fn authority() -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

async fn check(options: redis::Options) -> Result<(), Error> {
    Redis::open(options).unwrap().check().await.map(drop)
}

#[tokio::test]
async fn a_server_with_a_trusted_certificate_is_used() {
    let server = EncryptedServer::named("localhost").await;

    opened(server.trusting("authority.pem")).await.check().await.unwrap();
}

#[tokio::test]
async fn instances_of_a_store_wake_each_other_over_tls() {
    let server = EncryptedServer::named("localhost").await;
    let prefix = prefix();
    let open = async |instance: &str| {
        let mut options = store_options(&server.url(), &prefix, instance);
        options.root_certificates = Some(server.folder.join("authority.pem"));
        options.durability = Durability::Warn;
        RedisStore::open(options).await.unwrap()
    };
    let (sender, receiver) = (open("a").await, open("b").await);

    notified(&receiver, &sender, WakeUp::Due(PartitionNo(1))).await;
}

#[tokio::test]
async fn a_certificate_of_an_unknown_authority_or_for_another_host_is_refused() {
    let server = EncryptedServer::named("localhost").await;
    let elsewhere = EncryptedServer::named("elsewhere").await;

    for options in [server.trusting("other.pem"), elsewhere.trusting("authority.pem")] {
        let refused = check(options).await;
        assert!(matches!(&refused, Err(Error::Unreachable(reason)) if reason.contains("certificate")), "{refused:?}");
    }
}

#[tokio::test]
async fn a_file_of_authorities_that_cannot_be_used_is_reported() {
    let mut options = options("rediss://localhost", &prefix(), "one");
    options.root_certificates = Some("/no/such.pem".into());

    let error = Redis::open(options).err().unwrap();

    assert!(matches!(error, RedisOpenError::Authorities { .. }), "{error}");
    assert!(error.to_string().contains("/no/such.pem"), "{error}");
}
