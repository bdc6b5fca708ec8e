//! Authentication of a connection (SASL, KIP-152): PLAIN and SCRAM.
use std::time::Instant;

use bytes::Bytes;
use kafka_protocol::messages::{SaslAuthenticateRequest, SaslHandshakeRequest};
use kafka_protocol::protocol::StrBytes;
use secrecy::ExposeSecret;

use crate::options::Sasl;
use crate::protocol::connection::{CallError, Connection};
use crate::protocol::mechanism::Mechanism;
use crate::protocol::response_code::error_code;
use crate::protocol::scram::{self, ScramClient};

/// Authenticates a new connection.
///
/// # Errors
/// [`CallError::Refused`] when the broker does not accept the credentials, or does not prove that it knows them itself (SCRAM).
pub(crate) fn authenticate(connection: &mut Connection, sasl: &Sasl, deadline: Instant) -> Result<(), CallError> {
    let mechanism = Mechanism::parse(&sasl.mechanism).map_err(CallError::Refused)?;
    let request = SaslHandshakeRequest::default().with_mechanism(StrBytes::from_string(sasl.mechanism.clone()));
    let response = connection.call(&request, deadline)?;
    if error_code(response.error_code).is_some() {
        let offered: Vec<&str> = response.mechanisms.iter().map(StrBytes::as_str).collect();
        let reason = format!("it offers {}, not {}", offered.join(", "), sasl.mechanism);
        return Err(refused(connection, &reason));
    }
    let password = sasl.password.expose_secret();
    match mechanism {
        Mechanism::Plain => {
            let message = format!("\0{}\0{password}", sasl.username);
            exchange(connection, message.into_bytes(), deadline).map(drop)
        }
        Mechanism::Scram(hash) => {
            let client = ScramClient::new(hash, &sasl.username, password, &scram::nonce());
            let challenge = exchange(connection, client.first_message().into_bytes(), deadline)?;
            let proof = client.prove(&challenge).map_err(|reason| refused(connection, &reason))?;
            let answer = exchange(connection, proof.message.clone().into_bytes(), deadline)?;
            proof.verify(&answer).map_err(|reason| refused(connection, &reason))
        }
    }
}

/// Sends one message of the mechanism and returns the broker's.
fn exchange(connection: &mut Connection, message: Vec<u8>, deadline: Instant) -> Result<Bytes, CallError> {
    let request = SaslAuthenticateRequest::default().with_auth_bytes(message.into());
    let response = connection.call(&request, deadline)?;
    match error_code(response.error_code) {
        None => Ok(response.auth_bytes),
        Some(code) => {
            let text = response.error_message.map_or_else(|| code.to_string(), |text| text.as_str().to_owned());
            Err(refused(connection, &text))
        }
    }
}

fn refused(connection: &Connection, reason: &str) -> CallError {
    CallError::Refused(format!("authentication at broker {}: {reason}", connection.address()))
}
