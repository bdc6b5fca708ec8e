//! TLS to the server, with rustls and ring.
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::connection::address::CertificateTrust;
use crate::connection::open_error::PostgresOpenError;

/// Files in which Linux distributions keep the system's root certificates.
const BUNDLES: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];

/// A TLS connector that checks the server's certificate as `trust` says.
///
/// # Errors
/// [`PostgresOpenError::Roots`] when the file with the roots cannot be read or contains no certificate.
pub(crate) fn connector(trust: &CertificateTrust) -> Result<MakeRustlsConnect, PostgresOpenError> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| PostgresOpenError::Roots { path: PathBuf::new(), reason: error.to_string() })?;
    let config = match trust {
        CertificateTrust::Verified(path) => {
            builder.with_root_certificates(roots(path.as_deref())?).with_no_client_auth()
        }
        CertificateTrust::Unverified => builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AcceptAnyCertificate(provider)))
            .with_no_client_auth(),
    };
    Ok(MakeRustlsConnect::new(config))
}

fn roots(path: Option<&Path>) -> Result<RootCertStore, PostgresOpenError> {
    let bundle = || BUNDLES.iter().map(Path::new).find(|path| path.is_file());
    let path = path.or_else(bundle).unwrap_or(Path::new(BUNDLES[0]));
    let invalid = |reason: String| PostgresOpenError::Roots { path: path.to_path_buf(), reason };
    let mut store = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(path).map_err(|error| invalid(error.to_string()))? {
        let certificate = certificate.map_err(|error| invalid(error.to_string()))?;
        // A bundle may contain certificates that rustls rejects; one usable root is enough.
        let _ = store.add(certificate);
    }
    if store.is_empty() { Err(invalid("it contains no certificate".into())) } else { Ok(store) }
}

/// Accepts every certificate, as libpq does below `verify-ca`: the connection is encrypted, the server is not authenticated.
#[derive(Debug)]
struct AcceptAnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AcceptAnyCertificate {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
