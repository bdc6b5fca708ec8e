//! RootCertificates: the roots by which the certificate of an endpoint is verified.
use std::sync::Arc;

use ureq::tls::{Certificate, PemItem, RootCerts, parse_pem};

/// The roots of a private certificate authority, which replace the public ones.
#[derive(Clone, Debug)]
pub struct RootCertificates(Arc<Vec<Certificate<'static>>>);

impl RootCertificates {
    /// Reads the certificates of a PEM text; other items are ignored.
    ///
    /// # Errors
    /// The text is not PEM, or has no certificate, as the end of a sentence that begins with the name of the file.
    pub fn parse(pem: &[u8]) -> Result<Self, String> {
        let items = parse_pem(pem).collect::<Result<Vec<_>, _>>().map_err(|error| format!("is not PEM: {error}"))?;
        let certificates: Vec<_> = items
            .into_iter()
            .filter_map(|item| match item {
                PemItem::Certificate(certificate) => Some(certificate),
                _ => None,
            })
            .collect();
        if certificates.is_empty() {
            return Err("has no certificate".to_owned());
        }
        Ok(Self(Arc::new(certificates)))
    }

    pub(crate) fn into_roots(self) -> RootCerts {
        RootCerts::Specific(self.0)
    }
}
