//! The certificate authorities that an encrypted connection trusts.
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::ring;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

/// Files in which Linux distributions keep the system's root certificates.
const BUNDLES: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];

/// Encryption by rustls and ring; the broker's certificate is checked.
#[derive(Clone)]
pub(crate) struct TlsSettings(Arc<ClientConfig>);

impl TlsSettings {
    /// Trusts the authorities in this PEM file, or those of the system.
    ///
    /// # Errors
    /// Which file cannot be used.
    pub(crate) fn new(authorities: Option<&Path>) -> Result<Self, String> {
        let roots = roots(authorities)?;
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| format!("TLS: {error}"))?;
        Ok(Self(Arc::new(builder.with_root_certificates(roots).with_no_client_auth())))
    }

    pub(crate) fn config(&self) -> Arc<ClientConfig> {
        Arc::clone(&self.0)
    }
}

/// The file with the trusted certificates: this one, or that of the system.
pub(crate) fn authority_file(configured: Option<&Path>) -> PathBuf {
    let bundle = || BUNDLES.iter().map(PathBuf::from).find(|path| path.is_file());
    configured.map(Path::to_path_buf).or_else(bundle).unwrap_or_else(|| BUNDLES[0].into())
}

fn roots(configured: Option<&Path>) -> Result<RootCertStore, String> {
    let path = authority_file(configured);
    let invalid = |reason: String| format!("the certificate authorities in {}: {reason}", path.display());
    let mut store = RootCertStore::empty();
    let certificates = CertificateDer::pem_file_iter(&path).map_err(|error| invalid(error.to_string()))?;
    // A bundle may contain certificates that rustls rejects; one usable root is enough.
    store.add_parsable_certificates(certificates.flatten());
    if store.is_empty() { Err(invalid("there is none".into())) } else { Ok(store) }
}
