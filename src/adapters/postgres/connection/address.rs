//! Parsing the configured URL into a client configuration. No error contains the password.
use std::path::PathBuf;
use std::time::Duration;

use secrecy::ExposeSecret;
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};

use crate::connection::open_error::PostgresOpenError;
use crate::store::options::Options;

/// How the server's certificate is checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CertificateTrust {
    /// Not at all: the connection is encrypted, the server is not authenticated, as with libpq's `prefer` and `require`.
    Unverified,
    /// It is signed by a root of this file (`None`: the system's bundle) and names this host.
    Verified(Option<PathBuf>),
}

/// A database to connect to.
#[derive(Clone)]
pub(crate) struct DatabaseAddress {
    pub(crate) config: Config,
    pub(crate) trust: CertificateTrust,
    /// Host, port and database, without secrets: for logs and errors.
    pub(crate) location: String,
}

impl DatabaseAddress {
    /// Parses the URL of the options.
    ///
    /// # Errors
    /// [`PostgresOpenError::Url`] with a text of this module: the parser's text may quote the password.
    pub(crate) fn parse(options: &Options) -> Result<Self, PostgresOpenError> {
        let SeparatedUrl { supported, mode, roots } = SeparatedUrl::new(options.url.expose_secret().trim());
        let mut config: Config = supported.parse().map_err(|_| refused("it cannot be parsed"))?;
        let location = location(&config)?;
        let roots = roots.map(PathBuf::from).or_else(|| options.root_certificates.clone());
        let verified = match mode.as_deref() {
            None | Some("require") => roots.is_some(),
            Some("disable" | "prefer") => false,
            Some("verify-ca" | "verify-full") => true,
            Some(_) => return Err(refused("sslmode is one of disable, prefer, require, verify-full")),
        };
        let trust = if verified { CertificateTrust::Verified(roots) } else { CertificateTrust::Unverified };
        if verified {
            config.ssl_mode(SslMode::Require);
        }
        apply_timeouts_and_settings(&mut config, options);
        Ok(Self { config, trust, location })
    }

    /// The client configuration whose `application_name` shows purpose and instance in `pg_stat_activity`.
    pub(crate) fn for_purpose(&self, purpose: &str, instance: &str) -> Config {
        let mut config = self.config.clone();
        // The server truncates the name to 63 bytes and replaces characters outside ASCII.
        config.application_name(format!("posthaste {purpose} {instance}"));
        config
    }
}

fn refused(reason: &'static str) -> PostgresOpenError {
    PostgresOpenError::Url { reason }
}

fn location(config: &Config) -> Result<String, PostgresOpenError> {
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

fn apply_timeouts_and_settings(config: &mut Config, options: &Options) {
    config
        .connect_timeout(options.connect_timeout)
        .keepalives(true)
        .keepalives_idle(options.keepalive)
        .keepalives_interval(options.keepalive)
        .keepalives_retries(3)
        .tcp_user_timeout(options.unacknowledged_timeout);
    // During a fail-over a name may lead to a standby, and a pool would keep its connections to it: reads would be stale.
    if config.get_target_session_attrs() == TargetSessionAttrs::Any {
        config.target_session_attrs(TargetSessionAttrs::ReadWrite);
    }
    // A pooler shares server sessions between clients and does not accept `options`: there each transaction sets what it needs.
    if !options.pooler {
        let own = config.get_options().map(str::to_owned).unwrap_or_default();
        config.options(format!("{own} {}", session_settings(options)).trim());
    }
}

/// The settings of every session. With the keepalives the server too detects a dead client. The defaults of the database for isolation
/// and `synchronous_commit` must not weaken the guarantees of the statements. Every statement has a matching index, which the planner
/// would not use if the table was empty when it was last analysed: hence no sequential scans.
fn session_settings(options: &Options) -> String {
    let millis = |limit: Duration| limit.as_millis();
    let keepalive_seconds = options.keepalive.as_secs().max(1);
    let pairs = [
        ("default_transaction_isolation", "read\\ committed".into()),
        ("default_transaction_read_only", "off".into()),
        ("synchronous_commit", "on".into()),
        ("statement_timeout", millis(options.statement_timeout).to_string()),
        ("lock_timeout", millis(options.lock_timeout).to_string()),
        ("idle_in_transaction_session_timeout", millis(options.statement_timeout).to_string()),
        ("tcp_keepalives_idle", keepalive_seconds.to_string()),
        ("tcp_keepalives_interval", keepalive_seconds.to_string()),
        ("tcp_keepalives_count", "3".into()),
        ("tcp_user_timeout", millis(options.unacknowledged_timeout).to_string()),
        ("client_connection_check_interval", millis(options.keepalive).to_string()),
        ("standard_conforming_strings", "on".into()),
        ("quote_all_identifiers", "off".into()),
        ("plan_cache_mode", "force_generic_plan".into()),
        ("enable_seqscan", "off".into()),
        ("enable_bitmapscan", "off".into()),
        ("jit", "off".into()),
        ("timezone", "UTC".into()),
    ];
    pairs.map(|(name, value): (&str, String)| format!("-c {name}={value}")).join(" ")
}

/// `store.url`, as a URL or as `key=value` parts, split into the text for the client and the parameters of certificate verification.
struct SeparatedUrl {
    /// The text without `sslrootcert`, and without an `sslmode` that the client does not support.
    supported: String,
    /// The value of `sslmode`, whatever it is.
    mode: Option<String>,
    /// The value of `sslrootcert`.
    roots: Option<String>,
}

impl SeparatedUrl {
    fn new(text: &str) -> Self {
        let is_url = text.starts_with("postgres://") || text.starts_with("postgresql://");
        let (base, parameters, separator) = match text.split_once('?') {
            Some((base, parameters)) if is_url => (base, parameters, '&'),
            None if is_url => (text, "", '&'),
            _ => ("", text, ' '),
        };
        let (mut mode, mut roots, mut kept) = (None, None, Vec::new());
        for part in parameters.split(separator).filter(|part| !part.is_empty()) {
            match part.split_once('=').map(|(name, value)| (name.trim(), value.trim().trim_matches('\''))) {
                Some(("sslmode", value)) => {
                    mode = Some(value.to_string());
                    if ["disable", "prefer", "require"].contains(&value) {
                        kept.push(part);
                    }
                }
                Some(("sslrootcert", value)) => roots = Some(value.replace("%2F", "/").replace("%2f", "/")),
                _ => kept.push(part),
            }
        }
        let kept = kept.join(&separator.to_string());
        let supported = if base.is_empty() {
            kept
        } else if kept.is_empty() {
            base.into()
        } else {
            format!("{base}?{kept}")
        };
        Self { supported, mode, roots }
    }
}

#[cfg(test)]
mod tests {
    use ports::partitions::InstanceId;

    use super::*;

    fn address(url: &str) -> Result<DatabaseAddress, PostgresOpenError> {
        DatabaseAddress::parse(&Options::new(url, InstanceId("i".into())))
    }

    #[test]
    fn url_and_key_value_form_are_parsed_and_the_location_has_no_secret() {
        for url in [
            "postgres://ann:pa55word@db.example:5433/shop",
            "host=db.example port=5433 user=ann password=pa55word dbname=shop",
        ] {
            let address = address(url).unwrap();
            assert_eq!(
                (address.location.as_str(), &address.trust),
                ("db.example:5433/shop", &CertificateTrust::Unverified)
            );
            assert_eq!(address.config.get_password(), Some(b"pa55word".as_slice()));
            assert!(address.config.get_options().unwrap().contains("synchronous_commit=on"));
        }
    }

    #[test]
    fn verifying_sslmode_and_root_file_are_taken_out_of_the_url() {
        let verified = address("postgres://a@h/d?sslmode=verify-full&sslrootcert=%2Fetc%2Froots.pem").unwrap();
        assert_eq!(verified.trust, CertificateTrust::Verified(Some("/etc/roots.pem".into())));
        assert_eq!(verified.config.get_ssl_mode(), SslMode::Require);
        assert_eq!(address("host=h user=a sslmode=verify-full").unwrap().trust, CertificateTrust::Verified(None));
        assert_eq!(address("postgres://a@h/d?sslmode=require").unwrap().config.get_ssl_mode(), SslMode::Require);
        assert_eq!(address("postgres://a@h/d?sslmode=disable").unwrap().config.get_ssl_mode(), SslMode::Disable);
    }

    #[test]
    fn given_roots_are_verified_unless_the_url_asks_for_less() {
        let mut options = Options::new("", InstanceId("i".into()));
        options.root_certificates = Some("/etc/roots.pem".into());
        for (parameters, verified) in [
            ("", true),
            ("?sslmode=require", true),
            ("?sslmode=verify-ca", true),
            ("?sslmode=prefer", false),
            ("?sslmode=disable", false),
        ] {
            options.url = format!("postgres://a@h/d{parameters}").into();
            let address = DatabaseAddress::parse(&options).unwrap();
            let trust = CertificateTrust::Verified(Some("/etc/roots.pem".into()));
            assert_eq!(address.trust == trust, verified, "{parameters}");
            assert_eq!(address.config.get_ssl_mode() == SslMode::Require, verified, "{parameters}");
        }
    }

    #[test]
    fn unusable_url_is_refused_without_quoting_it() {
        for url in [
            "",
            "mysql://a:pa55word@h/d",
            "postgres://a:pa55word@h:port/d",
            "host=h password=pa55word",
            "postgres://a:pa55word@h/d?sslmode=maybe",
        ] {
            let error = address(url).err().unwrap_or_else(|| panic!("{url} was accepted"));
            assert!(!error.to_string().contains("pa55word") && !error.is_temporary(), "{error}");
        }
    }

    #[test]
    fn session_settings_are_not_sent_to_a_pooler() {
        let mut options = Options::new("postgres://a@h/d", InstanceId("i".into()));
        options.pooler = true;
        assert_eq!(DatabaseAddress::parse(&options).unwrap().config.get_options(), None);
    }
}
