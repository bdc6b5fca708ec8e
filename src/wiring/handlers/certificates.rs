//! Reads the root certificates to which the certificate chains of endpoints must lead.
use std::path::Path;

use endpoints::RootCertificates;

use super::super::start_error::StartError;

/// The certificates of a file that the setting `key` names.
///
/// # Errors
/// The file cannot be read, or has no certificate.
pub(in crate::wiring) fn root_certificates(key: &str, file: &Path) -> Result<RootCertificates, StartError> {
    let refused = |reason: String| StartError::Config(format!("{key}: {} {reason}", file.display()));
    let pem = std::fs::read(file).map_err(|error| refused(format!("cannot be read: {error}")))?;
    RootCertificates::parse(&pem).map_err(refused)
}
