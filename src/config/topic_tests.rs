//! Tests of the sections that name a topic: defaults, rules, variables, errors, secrets.
use std::time::Duration;

use app::consume::chain::PoisonMessageAction;
use app::relay::chain::Fallback;
use outbox::PoisonAction;
use secrecy::ExposeSecret;

use super::consumer::FallbackKind;
use super::layers::Environment;
use super::print::masked_settings;
use super::sections::Config;
use super::tests::{environment, errors, file};

fn load(text: &str, pairs: &[(&str, &str)]) -> Config {
    let file = file(text);
    Config::load(Some(file.path()), &environment(pairs)).expect("no errors")
}

#[test]
fn topic_without_keys_has_the_defaults_and_is_created() {
    let config = load("[topics.\"invoices\"]\n[topics.shop.customers]\n", &[]);

    assert_eq!(config.topics.keys().collect::<Vec<_>>(), ["invoices", "shop.customers"]);
    let topic = &config.topics["invoices"];
    assert_eq!((topic.partitions, topic.attempts_max, topic.retry_base, topic.poison), (None, None, None, None));
    assert_eq!((topic.fallback, topic.consumers, topic.consumer_attempts_max), (None, 0, 5));
    assert_eq!((topic.consumer_fallback, topic.consumer_poison), (FallbackKind::None, PoisonMessageAction::DeadLetter));
    assert_eq!(config.additional_topics(), ["invoices", "shop.customers"]);
    assert_eq!(Config::defaults().topics.len(), 0, "the description of the keys is not a topic");
}

#[test]
fn rules_of_a_topic_reach_the_relay_and_the_topics_around_it_are_created() {
    let config = load(
        "[broker]\ntopics = \"invoices, orders.audit\"\n\
         [topics.\"invoices\"]\npartitions = 3\nattempts_max = 2\nretry_base = \"50ms\"\npoison = \"skip-row\"\n\
         fallback = \"dead-letter\"\n\
         [topics.shop.customers]\nconsumers = 2\nconsumer_url = \"https://crm.example/hooks\"\nconsumer_poison = \"block-key\"\n\
         [outbox.fallback]\nORDER_CREATED = \"dead-letter\"\n",
        &[],
    );

    let rules = config.relay_rules();
    let retry = rules.retry_of("invoices");
    assert_eq!((retry.attempts_max, retry.base, retry.max), (2, Duration::from_millis(50), Duration::from_secs(300)));
    assert_eq!(rules.retry_of("shop.customers"), &config.outbox.retry);
    assert_eq!(rules.poison.value_for("invoices", "InvoicePaid"), PoisonAction::SkipRow);
    assert_eq!(rules.poison.value_for("shop.customers", "InvoicePaid"), PoisonAction::BlockKey);
    assert_eq!(rules.fallback.value_for("invoices", "InvoicePaid"), Fallback::DeadLetter);
    assert_eq!(rules.fallback.value_for("order.events", "ORDER_CREATED"), Fallback::DeadLetter);
    let topics = config.additional_topics();
    assert_eq!(topics[..3], ["invoices", "orders.audit", "invoices-dlt"]);
    assert_eq!(topics[3..], outbox::topics::all_topics("shop.customers")[..]);
    assert_eq!(config.external_topics(), ["invoices", "orders.audit", "shop.customers"]);
    let internal = config.internal_topics();
    for topic in
        ["order.events-retry-0", "invoices-retry-3", "invoices-dlt", "orders.audit-dlt", "shop.customers-retry-0"]
    {
        assert!(internal.iter().any(|name| name == topic), "{topic} is written by the service alone");
    }
    assert!(!internal.iter().any(|name| ["order.events", "invoices", "orders.audit"].contains(&name.as_str())));
    assert_eq!(config.partitions_by_topic()["invoices-dlt"], 3);
    assert_eq!(config.partitions_by_topic().get("shop.customers"), None);
}

#[test]
fn topics_of_the_orders_are_left_out_where_orders_are_disabled() {
    let disabled = "[orders]\nenabled = false\n";
    let names = |text: &str| load(&format!("{disabled}{text}"), &[]).all_topics();

    assert_eq!(names("[topics.\"invoices\"]\n"), ["invoices"]);
    assert_eq!(names("[broker]\ntopics = \"order.events\"\n"), ["order.events"], "unless they are named");
    assert!(load(disabled, &[]).internal_topics().iter().any(|name| name == "order.events-dlt"), "none may write them");
    assert_eq!(load("", &[]).all_topics(), outbox::topics::all_topics("order.events"));
}

#[test]
fn topic_of_another_service_may_be_named_as_the_dead_letters_of_another_one() {
    let config = load("[broker]\ntopics = \"payments, payments-dlt, order.events-dlt\"\n", &[]);

    let internal = config.internal_topics();

    let is_internal = |topic: &str| internal.iter().any(|name| name == topic);
    assert!(!is_internal("payments-dlt") && is_internal("payments-retry-0"));
    assert!(is_internal("order.events-dlt"), "the service itself writes it");
}

#[test]
fn variables_name_a_topic_in_capitals_with_two_underscores_for_a_dot() {
    let url = file("https://crm.example/hook?token=x\n");
    let path = url.path().display().to_string();
    let config = load(
        "[topics.\"Shop.invoices-2024\"]\nattempts_max = 7\n",
        &[
            ("POSTHASTE__TOPICS__SHOP__INVOICES_2024__ATTEMPTS_MAX", "3"),
            ("POSTHASTE__TOPICS__SHOP__CUSTOMERS__POISON", "skip-row"),
            ("POSTHASTE__TOPICS__SHOP__CUSTOMERS__CONSUMER_URL_FILE", &path),
        ],
    );

    assert_eq!(config.topics.keys().collect::<Vec<_>>(), ["Shop.invoices-2024", "shop.customers"]);
    assert_eq!(config.topics["Shop.invoices-2024"].attempts_max, Some(3));
    assert_eq!(config.topics["shop.customers"].poison, Some(PoisonAction::SkipRow));
    assert_eq!(config.topics["shop.customers"].consumer_url.expose_secret(), "https://crm.example/hook?token=x");
}

#[test]
fn errors_in_topics_are_reported_together_each_with_its_remedy() {
    let cases = [
        ("[topics.invoices]\npartition = 3\n", "topics.invoices.partition: unknown key"),
        ("[topics.invoices]\npartition = 3\n", "did you mean topics.invoices.partitions?"),
        ("[topics.invoices.retry]\nbase = \"1s\"\n", "did you mean topics.invoices.retry_base?"),
        ("[topics]\ninvoices = 3\n", "topics.invoices: must be a section such as [topics.\"invoices\"]"),
        ("[topics.NAME]\npartitions = 3\n", "NAME stands for the name of a topic"),
        ("[topics.\"in voices\"]\npartitions = 3\n", "topics.in voices: must be the name of a topic"),
        ("[topics.invoices]\npartitions = 0\n", "must be a whole number from 1 to 10000"),
        ("[topics.invoices]\nattempts_max = 0\n", "must be a whole number from 1 to 1000000"),
        ("[topics.invoices]\nretry_jitter = 2\n", "topics.invoices.retry_jitter = \"2\""),
        ("[topics.invoices]\nretry_base = \"1 hour\"\n", "must be a duration such as 250ms"),
        ("[topics.invoices]\nretry_base = \"10m\"\n", "topics.invoices.retry_max: must not be shorter"),
        ("[topics.invoices]\npoison = \"skip\"\n", "must be block-key or skip-row"),
        ("[topics.invoices]\nfallback = \"dlt\"\n", "must be none or dead-letter"),
        ("[topics.invoices]\nconsumers = 1\n", "topics.invoices.consumer_url: must be set for consumers = 1"),
        ("[topics.invoices]\nconsumer_url = \"ftp://x/y\"\n", "topics.invoices.consumer_url: must be an http"),
        ("[topics.invoices]\nconsumer_fallback = \"post\"\n", "topics.invoices.consumer_fallback_url: must be set"),
        ("[topics.invoices]\nconsumer_attempts_max = 6\n", "must be a whole number from 1 to 5"),
        (
            "[topics.order.events]\nconsumers = 1\nconsumer_url = \"http://x\"\n",
            "set consumer.count and consumer.handler",
        ),
        ("[topics.\"order.events-dlt\"]\n", "topics.order.events-dlt: this topic belongs to order.events"),
        ("[topics.a]\n[topics.a-retry-1]\n", "topics.a-retry-1: this topic belongs to a and has the rules of a"),
        (
            "[broker]\nkind = \"none\"\n[topics.invoices]\nconsumers = 1\nconsumer_url = \"http://x\"\n",
            "topics.invoices.consumers: needs a broker",
        ),
    ];
    for (text, expected) in cases {
        let found = errors(text, &[]);
        assert_eq!(found.len(), 1, "{text:?}: {found:?}");
        assert!(found[0].contains(expected), "{expected:?} is missing in {found:?}");
    }
    let all = cases.map(|(text, _)| text)[6..9].join("").replace("[topics.invoices]\n", "");
    assert_eq!(errors(&format!("[topics.invoices]\n{all}"), &[("POSTHASTE__NOPE", "1")]).len(), 4, "together");
    let similar = "[topics.a-b]\n[topics.a_b]\n";
    let found = errors(similar, &[("POSTHASTE__TOPICS__A_B__POISON", "skip-row")]);
    assert_eq!(found, ["topics.a_b: a variable cannot distinguish a-b and a_b; set it in the file"]);
}

#[test]
fn urls_of_topics_are_secret() {
    let text = "[topics.invoices]\nconsumer_url = \"http://h/hidden\"\nconsumer_fallback_url = \"http://h/hidden\"\n";
    let file = file(text);

    let settings = masked_settings(Some(file.path()), &Environment::default()).expect("no errors");

    let of_topic: Vec<_> = settings.iter().filter(|setting| setting.key.starts_with("topics.")).collect();
    assert_eq!(of_topic.len(), 13, "every key of the topic, and no description: {of_topic:?}");
    assert!(!format!("{settings:?} {:?}", load(text, &[])).contains("hidden"));
    let refused = errors("[topics.invoices]\nconsumer_url = \"hidden\"\n", &[]).join("");
    assert!(!refused.contains("hidden"), "{refused}");
}
