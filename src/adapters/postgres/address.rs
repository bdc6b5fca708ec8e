//! From the URL to a client's configuration. What is secret in it leaves through no error.
use std::path::PathBuf;
use std::time::Duration;

use secrecy::ExposeSecret;
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};

use crate::open_error::OpenError;
use crate::options::Options;

/// How far the server's certificate is trusted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Trust {
    /// Encrypted, whoever it is: what libpq's `prefer` and `require` mean.
    Anyone,
    /// Signed by one of these roots (none: the system's) and made for this host.
    Verified(Option<PathBuf>),
}

/// A database to connect to.
#[derive(Clone)]
pub(crate) struct Address {
    /// What the client needs.
    pub(crate) config: Config,
    /// Whom it trusts.
    pub(crate) trust: Trust,
    /// Where it is, fit for logs and errors: host, port and database.
    pub(crate) place: String,
}

impl Address {
    /// Reads the URL of the options.
    ///
    /// # Errors
    /// [`OpenError::Url`] in words of our own: the parser's might quote the password.
    pub(crate) fn of(options: &Options) -> Result<Self, OpenError> {
        let (text, mode, roots) = without_verification(options.url.expose_secret().trim());
        let mut config: Config = text.parse().map_err(|_| refused("it cannot be read"))?;
        let place = place(&config)?;
        let verified = match mode.as_deref() {
            None => false,
            Some("verify-ca" | "verify-full") => true,
            Some(_) => return Err(refused("sslmode is one of disable, prefer, require, verify-full")),
        };
        let roots = roots.map(PathBuf::from).or_else(|| options.root_certificates.clone());
        let trust = if verified { Trust::Verified(roots) } else { Trust::Anyone };
        if verified {
            config.ssl_mode(SslMode::Require);
        }
        settings(&mut config, options);
        Ok(Self { config, trust, place })
    }

    /// The same place for a session of another purpose, as the server's list of sessions shows it.
    pub(crate) fn named(&self, purpose: &str, instance: &str) -> Config {
        let mut config = self.config.clone();
        // The server cuts names at 63 bytes and replaces what is not ASCII.
        config.application_name(format!("posthaste {purpose} {instance}"));
        config
    }
}

fn refused(why: &'static str) -> OpenError {
    OpenError::Url { reason: why }
}

fn place(config: &Config) -> Result<String, OpenError> {
    if config.get_user().is_none() {
        return Err(refused("it names no user"));
    }
    let host = match (config.get_hosts().first(), config.get_hostaddrs().first()) {
        (Some(Host::Tcp(name)), _) => name.clone(),
        (Some(Host::Unix(path)), _) => path.display().to_string(),
        (None, Some(address)) => address.to_string(),
        (None, None) => return Err(refused("it names no host")),
    };
    let port = config.get_ports().first().copied().unwrap_or(5432);
    let database = config.get_dbname().or(config.get_user()).unwrap_or_default();
    Ok(format!("{host}:{port}/{database}"))
}

fn settings(config: &mut Config, options: &Options) {
    config
        .connect_timeout(options.connect_within)
        .keepalives(true)
        .keepalives_idle(options.keepalive)
        .keepalives_interval(options.keepalive)
        .keepalives_retries(3)
        .tcp_user_timeout(options.unacknowledged_within);
    // A pooler hands sessions on and knows no `options`: there each transaction sets what it needs.
    if !options.pooler {
        let own = config.get_options().map(str::to_owned).unwrap_or_default();
        config.options(format!("{own} {}", session_settings(options)).trim());
    }
}

/// What every session of ours begins with. The server finds out too when we are gone; a session default of SERIALIZABLE or of
/// asynchronous commits must not change what our statements promise; and every statement of ours has an index to walk along, which
/// the planner must not forsake because a table was empty when it last looked.
fn session_settings(options: &Options) -> String {
    let ms = |limit: Duration| limit.as_millis();
    let second = options.keepalive.as_secs().max(1);
    let pairs = [
        ("default_transaction_isolation", "read\\ committed".into()),
        ("default_transaction_read_only", "off".into()),
        ("synchronous_commit", "on".into()),
        ("statement_timeout", ms(options.statement_within).to_string()),
        ("lock_timeout", ms(options.lock_within).to_string()),
        ("idle_in_transaction_session_timeout", ms(options.statement_within).to_string()),
        ("tcp_keepalives_idle", second.to_string()),
        ("tcp_keepalives_interval", second.to_string()),
        ("tcp_keepalives_count", "3".into()),
        ("tcp_user_timeout", ms(options.unacknowledged_within).to_string()),
        ("client_connection_check_interval", ms(options.keepalive).to_string()),
        ("plan_cache_mode", "force_generic_plan".into()),
        ("enable_seqscan", "off".into()),
        ("enable_bitmapscan", "off".into()),
        ("jit", "off".into()),
        ("timezone", "UTC".into()),
    ];
    pairs.map(|(name, value): (&str, String)| format!("-c {name}={value}")).join(" ")
}

/// The URL without what the client does not know: a mode of verification, and the file with the roots.
fn without_verification(text: &str) -> (String, Option<String>, Option<String>) {
    let is_url = text.starts_with("postgres://") || text.starts_with("postgresql://");
    let (front, rest, between) = match text.split_once('?') {
        Some((front, rest)) if is_url => (front, rest, '&'),
        None if is_url => (text, "", '&'),
        _ => ("", text, ' '),
    };
    let (mut mode, mut roots, mut kept) = (None, None, Vec::new());
    for part in rest.split(between).filter(|part| !part.is_empty()) {
        match part.split_once('=').map(|(name, value)| (name.trim(), value.trim().trim_matches('\''))) {
            Some(("sslmode", value)) if !["disable", "prefer", "require"].contains(&value) => {
                mode = Some(value.to_string());
            }
            Some(("sslrootcert", value)) => roots = Some(value.replace("%2F", "/").replace("%2f", "/")),
            _ => kept.push(part),
        }
    }
    let kept = kept.join(&between.to_string());
    let text = if front.is_empty() {
        kept
    } else if kept.is_empty() {
        front.into()
    } else {
        format!("{front}?{kept}")
    };
    (text, mode, roots)
}

#[cfg(test)]
mod tests {
    use ports::partitions::InstanceId;

    use super::*;

    fn address(url: &str) -> Result<Address, OpenError> {
        Address::of(&Options::new(url, InstanceId("i".into())))
    }

    #[test]
    fn both_forms_are_read_and_the_place_has_no_secret() {
        for url in [
            "postgres://ann:pa55word@db.example:5433/shop",
            "host=db.example port=5433 user=ann password=pa55word dbname=shop",
        ] {
            let address = address(url).unwrap();
            assert_eq!((address.place.as_str(), &address.trust), ("db.example:5433/shop", &Trust::Anyone));
            assert_eq!(address.config.get_password(), Some(b"pa55word".as_slice()));
            assert!(address.config.get_options().unwrap().contains("synchronous_commit=on"));
        }
    }

    #[test]
    fn verification_is_taken_out_of_the_url() {
        let verified = address("postgres://a@h/d?sslmode=verify-full&sslrootcert=%2Fetc%2Froots.pem").unwrap();
        assert_eq!(verified.trust, Trust::Verified(Some("/etc/roots.pem".into())));
        assert_eq!(verified.config.get_ssl_mode(), SslMode::Require);
        assert_eq!(address("host=h user=a sslmode=verify-full").unwrap().trust, Trust::Verified(None));
        assert_eq!(address("postgres://a@h/d?sslmode=require").unwrap().config.get_ssl_mode(), SslMode::Require);
        assert_eq!(address("postgres://a@h/d?sslmode=disable").unwrap().config.get_ssl_mode(), SslMode::Disable);
    }

    #[test]
    fn a_url_that_cannot_be_used_is_refused_without_quoting_it() {
        for url in [
            "",
            "mysql://a:pa55word@h/d",
            "postgres://a:pa55word@h:port/d",
            "host=h password=pa55word",
            "postgres://a:pa55word@h/d?sslmode=maybe",
        ] {
            let error = address(url).err().unwrap_or_else(|| panic!("{url} was taken"));
            assert!(!error.to_string().contains("pa55word") && !error.may_pass(), "{error}");
        }
    }

    #[test]
    fn a_pooler_is_told_no_session_settings() {
        let mut options = Options::new("postgres://a@h/d", InstanceId("i".into()));
        options.pooler = true;
        assert_eq!(Address::of(&options).unwrap().config.get_options(), None);
    }
}
