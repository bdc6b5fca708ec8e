//! The address of a server, and the certificate authorities that a connection to it trusts.
use std::path::Path;

use deadpool_redis::redis::{Client, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, TlsCertificates};
use secrecy::{ExposeSecret, SecretString};

use crate::connection::open_error::RedisOpenError;

/// Address and security of a connection. With `rediss://` the certificate of the server must be signed by an authority in this PEM file, or by one
/// of the system.
///
/// # Errors
/// The URL or the file cannot be used.
pub(crate) fn connection_info(
    url: &SecretString,
    authorities: Option<&Path>,
) -> Result<ConnectionInfo, RedisOpenError> {
    let invalid = |error: deadpool_redis::redis::RedisError| RedisOpenError::Url(error.category().to_owned());
    let info = url.expose_secret().into_connection_info().map_err(invalid)?;
    if !matches!(info.addr(), ConnectionAddr::TcpTls { .. }) {
        return Ok(info);
    }
    // The client takes the provider of the process. An error means that it has one already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let Some(file) = authorities else { return Ok(info) };
    let unusable = |reason: String| RedisOpenError::Authorities { file: file.to_owned(), reason };
    let root_cert = std::fs::read(file).map_err(|error| unusable(error.to_string()))?;
    let certificates = TlsCertificates { client_tls: None, root_cert: Some(root_cert) };
    let client = Client::build_with_tls(info, certificates).map_err(|error| unusable(error.to_string()))?;
    Ok(client.get_connection_info().clone())
}
