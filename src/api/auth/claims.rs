//! The claims of a token, with the checks that do not depend on the time.
use domain::Subject;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::auth::identity::Identity;

/// Bytes of a subject: together with an idempotency key of 128 it fits into every store's index.
const SUBJECT_MAX: usize = 1_024;

/// The claims that are read. With `present`, a claim that is null counts as present, and so as malformed.
#[derive(Deserialize)]
pub(crate) struct BearerClaims {
    #[serde(default, deserialize_with = "present")]
    sub: Option<Value>,
    #[serde(default, deserialize_with = "present")]
    roles: Option<Value>,
    tier: Option<Value>,
    exp: Option<Value>,
    #[serde(default, deserialize_with = "present")]
    nbf: Option<Value>,
    iss: Option<Value>,
    aud: Option<Value>,
}

fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

impl BearerClaims {
    /// The caller, if every claim is well formed and issuer and audience are the expected ones.
    pub(crate) fn identity(self, issuer: Option<&str>, audience: Option<&str>) -> Option<Identity> {
        if issuer.is_some_and(|expected| self.iss.as_ref().and_then(Value::as_str) != Some(expected)) {
            return None;
        }
        if audience.is_some_and(|expected| !matches_audience(self.aud.as_ref(), expected)) {
            return None;
        }
        let roles = roles(self.roles.as_ref())?;
        let has = |role: &str| roles.contains(&role);
        let tier = match &self.tier {
            None => "default",
            Some(tier) => tier.as_str()?,
        };
        Some(Identity {
            subject: self.sub.as_ref()?.as_str().filter(|name| is_storable(name)).and_then(Subject::new)?,
            user: has("USER"),
            admin: has("ADMIN"),
            consumer: has("CONSUMER"),
            publisher: has("PUBLISHER"),
            tier: tier.into(),
            expires: self.exp.as_ref()?.as_f64()?,
            not_before: match self.nbf {
                None => None,
                Some(start) => Some(start.as_f64()?),
            },
        })
    }
}

/// Stores cannot hold a zero byte in a text, and a line break would split log lines.
fn is_storable(name: &str) -> bool {
    name.len() <= SUBJECT_MAX && !name.chars().any(char::is_control)
}

/// The names of the roles; `None` for a claim of the wrong type.
fn roles(claim: Option<&Value>) -> Option<Vec<&str>> {
    match claim {
        None => Some(Vec::new()),
        Some(Value::String(one)) => Some(vec![one]),
        Some(Value::Array(many)) => many.iter().map(Value::as_str).collect(),
        Some(_) => None,
    }
}

fn matches_audience(audience: Option<&Value>, expected: &str) -> bool {
    match audience {
        Some(Value::String(one)) => one == expected,
        Some(Value::Array(many)) => many.iter().any(|one| one.as_str() == Some(expected)),
        _ => false,
    }
}
