//! Classes of failures: whether another attempt can help, where the failure came from, and the stored reason text.
use std::fmt;

use crate::limits::REASON_CHARS_MAX;

/// Whether another attempt of the same call can succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FaultClass {
    /// Passes without help: a time-out, a cut connection, a node that restarts.
    Transient,
    /// Passes slowly or needs help: overload, a full disk, a quota.
    SemiTransient,
    /// Every repetition of the same call fails.
    Permanent,
}

impl FaultClass {
    /// Every class, so that metrics exist before the first failure.
    pub const ALL: [FaultClass; 3] = [FaultClass::Transient, FaultClass::SemiTransient, FaultClass::Permanent];

    /// The name in logs, headers and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            FaultClass::Transient => "TRANSIENT",
            FaultClass::SemiTransient => "SEMI_TRANSIENT",
            FaultClass::Permanent => "PERMANENT",
        }
    }
}

/// The origin of a failure, as operators filter by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FailureType {
    /// The other side was not reachable.
    Network,
    /// No reply arrived in time.
    Timeout,
    /// The data itself was refused.
    Validation,
    /// Every failure of no other type.
    System,
}

impl FailureType {
    /// Every type, so that metrics exist before the first failure.
    pub const ALL: [FailureType; 4] =
        [FailureType::Network, FailureType::Timeout, FailureType::Validation, FailureType::System];

    /// The name in tables, logs and headers.
    pub fn as_str(self) -> &'static str {
        match self {
            FailureType::Network => "NETWORK",
            FailureType::Timeout => "TIMEOUT",
            FailureType::Validation => "VALIDATION",
            FailureType::System => "SYSTEM",
        }
    }

    /// Parses the name that [`FailureType::as_str`] returns; capitals only.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|failure_type| failure_type.as_str() == text)
    }
}

impl fmt::Display for FailureType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A reason as stores and headers keep it: at most [`REASON_CHARS_MAX`] characters, cut at a character boundary. NUL is removed,
/// because PostgreSQL cannot store it.
pub fn truncate_reason(reason: &str) -> String {
    reason.chars().filter(|character| *character != '\0').take(REASON_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_failure_type_is_parsed_back_from_its_name() {
        for failure_type in FailureType::ALL {
            assert_eq!(FailureType::parse(&failure_type.to_string()), Some(failure_type));
        }
        assert_eq!(FailureType::parse("timeout"), None);
    }

    #[test]
    fn reasons_are_cut_between_characters_and_lose_nul() {
        let cases = [
            ("short".to_owned(), "short".to_owned()),
            ("漢".repeat(300), "漢".repeat(256)),
            ("a".repeat(256), "a".repeat(256)),
            ("\0broken\0 text".to_owned(), "broken text".to_owned()),
            (format!("\0{}", "b".repeat(257)), "b".repeat(256)),
        ];

        for (reason, expected) in cases {
            assert_eq!(truncate_reason(&reason), expected);
        }
    }
}
