//! An endpoint whose certificate a private authority has signed.
use std::sync::Arc;
use std::time::Duration;

use endpoints::{HttpEndpoint, Options, RootCertificates};
use ports::endpoint::{EventEndpoint, EventRequest};
use ports::{FailureType, FaultClass};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::PrivateKeyDer;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

/// Starts an endpoint for `localhost`; returns its port, and its authority's certificate as PEM.
async fn start() -> (u16, String) {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(["localhost".to_owned()]).unwrap().signed_by(&key, &authority).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], PrivateKeyDer::try_from(key.serialize_der()).unwrap())
        .unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            // A client that does not trust the certificate ends the handshake.
            let Ok(mut stream) = acceptor.accept(client).await else { continue };
            let mut request = [0; 4096];
            if matches!(stream.read(&mut request).await, Ok(1..)) {
                let response = b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
                stream.write_all(response).await.unwrap();
                stream.shutdown().await.unwrap();
            }
        }
    });
    (port, authority.pem())
}

fn endpoint(port: u16, roots: Option<RootCertificates>) -> HttpEndpoint {
    let url = format!("https://localhost:{port}/events").parse().unwrap();
    HttpEndpoint::new(Options { timeout: Duration::from_secs(10), roots, ..Options::new(url) })
}

fn event() -> EventRequest {
    EventRequest { attributes: Default::default(), body: b"{}".as_slice().into() }
}

#[tokio::test]
async fn endpoint_of_a_private_authority_is_trusted_with_its_root_only() {
    let (port, root) = start().await;
    let (_, other_root) = start().await;
    let parsed = |pem: &str| Some(RootCertificates::parse(pem.as_bytes()).unwrap());

    assert_eq!(endpoint(port, parsed(&root)).send(event()).await, Ok(()));
    assert_eq!(endpoint(port, parsed(&format!("{other_root}{root}"))).send(event()).await, Ok(()), "a file with two");
    for roots in [None, parsed(&other_root)] {
        let error = endpoint(port, roots).send(event()).await.unwrap_err();
        assert_eq!((error.fault, error.failure_type), (FaultClass::Transient, FailureType::Network), "{error}");
    }
}

#[test]
fn file_without_a_certificate_is_refused() {
    let key = KeyPair::generate().unwrap().serialize_pem();

    assert!(RootCertificates::parse(b"").unwrap_err().contains("no certificate"));
    assert!(RootCertificates::parse(key.as_bytes()).unwrap_err().contains("no certificate"));
    assert!(RootCertificates::parse(b"-----BEGIN CERTIFICATE-----\n%%%\n-----END CERTIFICATE-----\n").is_err());
}
