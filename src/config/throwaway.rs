//! The settings of a process that works on throwaway data, as environment variables: it reads no file.
use std::path::Path;

use super::layers::{self, ConfigErrors, Environment, SettingOrigin, variable};
use super::load;

/// Keys, and sections that end with a dot, by which a service reaches topics and endpoints of other programs.
const EXTERNAL: [&str; 7] = [
    "topics.",
    "broker.topics",
    "consumer.handler.",
    "consumer.url.",
    "consumer.fallback.",
    "consumer.fallback_url.",
    "tracing.",
];

/// The settings of the file and the environment as variables, secrets in clear. Topics of other programs, the URLs that receive events and the
/// collector of spans are left out.
///
/// # Errors
/// The same errors as [`super::Config::load`].
pub fn throwaway_environment(file: Option<&Path>, environment: &Environment) -> Result<Environment, ConfigErrors> {
    let settings = layers::load(file, environment);
    load::parse(settings.clone()).into_valid()?;
    let set = settings.by_key.into_iter().filter(|(key, setting)| {
        !matches!(setting.origin, SettingOrigin::Default) && !EXTERNAL.iter().any(|external| key.starts_with(external))
    });
    Ok(Environment(set.map(|(key, setting)| (variable(&key), setting.text)).collect()))
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret;

    use super::super::sections::{BrokerKind, Config, StoreKind};
    use super::*;

    const FILE: &str = r#"
        store.kind = "postgres"
        store.url = "postgres://file"
        broker = { kind = "kafka", bootstrap_servers = "b:1", topics = ["customers"] }
        outbox.publisher.batch = 7
        consumer.handler.ORDER_CREATED = "post"
        consumer.url.ORDER_CREATED = "https://crm.example/in"
        consumer.fallback.ORDER_CANCELLED = "post"
        consumer.fallback_url.ORDER_CANCELLED = "https://crm.example/late"
        consumer.attempts_max.ORDER_CREATED = 2
        tracing.endpoint = "http://collector:4318"
        [topics."Shop-Invoices"]
        consumers = 2
        consumer_url = "https://crm.example/invoices"
        [topics."Shop_invoices"]
    "#;

    /// The configuration of a process with only these variables.
    fn throwaway_config(environment: &Environment) -> Config {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("posthaste.toml");
        std::fs::write(&file, FILE).expect("written");
        let variables = throwaway_environment(Some(&file), environment).expect("legal");
        Config::load(None, &variables).expect("legal")
    }

    #[test]
    fn process_on_throwaway_data_reaches_no_topic_and_no_endpoint_of_other_programs() {
        let variable = ("POSTHASTE__TOPICS__OTHERS__CONSUMERS".to_owned(), "0".to_owned());

        let config = throwaway_config(&Environment([variable].into()));

        assert!(config.additional_topics().is_empty() && config.external_topics().is_empty());
        assert!(!config.consumer.posts());
        assert!(config.consumer.url.values().all(|url| url.expose_secret().is_empty()));
        assert!(config.tracing.endpoint.is_none());
    }

    #[test]
    fn process_on_throwaway_data_has_the_other_settings_of_file_and_environment() {
        let variable = ("POSTHASTE__STORE__URL".to_owned(), "postgres://variable".to_owned());

        let config = throwaway_config(&Environment([variable].into()));

        assert_eq!((config.store.kind, config.broker.kind), (StoreKind::Postgres, BrokerKind::Kafka));
        assert_eq!(config.store.url.expose_secret(), "postgres://variable");
        assert_eq!((config.outbox.publisher.batch, config.consumer.attempts_max["ORDER_CREATED"]), (7, 2));
    }
}
