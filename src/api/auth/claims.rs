//! What a token says, read with each claim's own strictness.
use domain::Subject;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::Identity;

/// Longest name of a caller, in bytes: with a key of 128 it fits into every store's index.
const SUBJECT_MAX: usize = 1_024;

/// The claims we look at. A claim that is there and null is there.
#[derive(Deserialize)]
pub(super) struct Claims {
    #[serde(default, deserialize_with = "there")]
    sub: Option<Value>,
    #[serde(default, deserialize_with = "there")]
    roles: Option<Value>,
    tier: Option<Value>,
    exp: Option<Value>,
    #[serde(default, deserialize_with = "there")]
    nbf: Option<Value>,
    iss: Option<Value>,
    aud: Option<Value>,
}

fn there<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

impl Claims {
    /// The caller, if every claim is well formed and issuer and audience are the wanted ones.
    pub(super) fn identity(self, issuer: Option<&str>, audience: Option<&str>) -> Option<Identity> {
        if issuer.is_some_and(|wanted| self.iss.as_ref().and_then(Value::as_str) != Some(wanted)) {
            return None;
        }
        if audience.is_some_and(|wanted| !is_for(self.aud.as_ref(), wanted)) {
            return None;
        }
        let (user, admin) = roles(self.roles.as_ref())?;
        let tier = match &self.tier {
            None => "default",
            Some(tier) => tier.as_str()?,
        };
        Some(Identity {
            subject: self.sub.as_ref()?.as_str().filter(|name| is_name(name)).and_then(Subject::new)?,
            user,
            admin,
            tier: tier.into(),
            expires: self.exp.as_ref()?.as_f64()?,
            not_before: match self.nbf {
                None => None,
                Some(start) => Some(start.as_f64()?),
            },
        })
    }
}

/// No store holds a zero byte in a text, and no log wants a line break in a name.
fn is_name(name: &str) -> bool {
    name.len() <= SUBJECT_MAX && !name.chars().any(char::is_control)
}

/// Whether USER and ADMIN are among the roles; `None` for a claim of the wrong type.
fn roles(claim: Option<&Value>) -> Option<(bool, bool)> {
    let names: Vec<&str> = match claim {
        None => Vec::new(),
        Some(Value::String(one)) => vec![one],
        Some(Value::Array(many)) => many.iter().map(Value::as_str).collect::<Option<_>>()?,
        Some(_) => return None,
    };
    Some((names.contains(&"USER"), names.contains(&"ADMIN")))
}

fn is_for(audience: Option<&Value>, wanted: &str) -> bool {
    match audience {
        Some(Value::String(one)) => one == wanted,
        Some(Value::Array(many)) => many.iter().any(|one| one.as_str() == Some(wanted)),
        _ => false,
    }
}
