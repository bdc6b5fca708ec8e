//! The mechanisms of authentication, by their names in the options.
use crate::protocol::scram::Hash;

/// A mechanism that the producer knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mechanism {
    Plain,
    Scram(Hash),
}

impl Mechanism {
    /// Parses the mechanism's name in the options.
    ///
    /// # Errors
    /// The text for the operator, with the supported names.
    pub(crate) fn parse(name: &str) -> Result<Self, String> {
        match name {
            "PLAIN" => Ok(Mechanism::Plain),
            "SCRAM-SHA-256" => Ok(Mechanism::Scram(Hash::Sha256)),
            "SCRAM-SHA-512" => Ok(Mechanism::Scram(Hash::Sha512)),
            other => Err(format!("the SASL mechanism is {other}; there are PLAIN, SCRAM-SHA-256 and SCRAM-SHA-512")),
        }
    }
}
