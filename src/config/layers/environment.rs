//! The environment variables of the process that set keys.
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::{self, Debug};

use super::config_errors::ConfigErrors;

/// Prefix of the environment variables that set a key.
pub(super) const PREFIX: &str = "POSTHASTE__";

/// Environment variables by name. Debug output shows the names only: values may be secret.
#[derive(Clone, Default)]
pub struct Environment(pub BTreeMap<String, String>);

impl Environment {
    /// The variables of this process that begin with `POSTHASTE__`.
    ///
    /// # Errors
    /// Names the variables whose name or value is not UTF-8: the service would use other paths than it was given.
    pub fn from_process() -> Result<Self, ConfigErrors> {
        Self::from_variables(std::env::vars_os())
    }

    fn from_variables(variables: impl Iterator<Item = (OsString, OsString)>) -> Result<Self, ConfigErrors> {
        let (mut own, mut errors) = (BTreeMap::new(), Vec::new());
        for (name, value) in variables {
            let shown = name.to_string_lossy();
            if !shown.starts_with(PREFIX) {
                continue;
            }
            match (name.to_str(), value.into_string()) {
                (Some(name), Ok(value)) => drop(own.insert(name.to_owned(), value)),
                (None, _) => errors.push(format!("{shown}: the name of the variable is not UTF-8")),
                (Some(_), Err(_)) => errors.push(format!("{shown}: the value of the variable is not UTF-8")),
            }
        }
        if errors.is_empty() { Ok(Self(own)) } else { Err(ConfigErrors(errors)) }
    }
}

impl Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::ffi::OsStringExt;

    use super::*;

    #[test]
    fn variables_that_are_not_utf8_are_refused_by_name() {
        let text = |bytes: &[u8]| OsString::from_vec(bytes.to_vec());
        let variables = [
            (text(b"OTHER\xff"), text(b"\xff")),
            (text(b"POSTHASTE__STORE__PATH"), text(b"/data\xff")),
            (text(b"POSTHASTE__A\xff"), text(b"1")),
            (text(b"POSTHASTE__HTTP__LISTEN"), text(b"127.0.0.1:0")),
        ];

        let ConfigErrors(errors) = Environment::from_variables(variables.clone().into_iter()).expect_err("not UTF-8");

        let expected = [
            "POSTHASTE__STORE__PATH: the value of the variable is not UTF-8",
            "POSTHASTE__A\u{fffd}: the name of the variable is not UTF-8",
        ];
        assert_eq!(errors, expected);
        let valid = variables.into_iter().filter(|(name, _)| name == "POSTHASTE__HTTP__LISTEN");
        assert_eq!(Environment::from_variables(valid).expect("UTF-8").0.len(), 1);
    }
}
