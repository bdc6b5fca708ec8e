//! `config print` and `serve` find the same mistakes, all of them in one report.
use crate::harness::backend::Backend;
use crate::harness::process::{command, finish};

type Settings = &'static [(&'static str, &'static str)];

const POSTGRES: Settings =
    &[("STORE__KIND", "postgres"), ("STORE__URL", "postgres://u@h:notaport/db"), ("BROKER__KIND", "none")];
const REDIS: Settings = &[("STORE__KIND", "redis"), ("STORE__URL", "redis://h:notaport"), ("BROKER__KIND", "none")];
const CACHE: Settings = &[("CACHE__KIND", "redis"), ("REDIS__URL", "redis://h:notaport")];
const CERTIFICATES: Settings = &[
    ("CONSUMER__POST__CA_FILE", "/no/such.pem"),
    ("WEBHOOKS__CA_FILE", "/no/such.pem"),
    ("TRACING__ENDPOINT", "http://localhost:4318"),
    ("TRACING__CA_FILE", "/no/such.pem"),
];
const LEASE: Settings = &[("OUTBOX__LEASE", "1ms")];

/// Runs a command that must find exactly these mistakes, each named by how it begins.
#[track_caller]
fn assert_mistakes(arguments: &[&str], removed: Option<&str>, settings: &[Settings], mistakes: &[&str]) {
    let backend = Backend::new();
    let mut command = command(&backend, arguments);
    for (name, value) in settings.concat() {
        command.env(format!("POSTHASTE__{name}"), value);
    }
    removed.map(|name| command.env_remove(name));

    let (code, _, stderr) = finish(&mut command);

    assert_eq!(code, if mistakes.is_empty() { 0 } else { 78 }, "{arguments:?} {settings:?}: {stderr}");
    let count = format!("the configuration has {} mistake(s)", mistakes.len());
    assert!(mistakes.is_empty() || stderr.contains(&count), "{arguments:?} {settings:?}: {stderr}");
    for mistake in mistakes {
        assert!(stderr.lines().any(|line| line.starts_with(mistake)), "{mistake} is missing: {arguments:?} {stderr}");
    }
}

#[test]
fn config_print_refuses_what_serve_refuses() {
    let certificates = ["consumer.post.ca_file: ", "webhooks.ca_file: ", "tracing.ca_file: "];
    let all = [&["outbox.lease ", "store.url: it cannot be parsed", "redis.url: "][..], &certificates].concat();
    let cases: [(&[Settings], &[&str]); 7] = [
        (&[LEASE], &["outbox.lease "]),
        (&[POSTGRES], &["store.url: it cannot be parsed"]),
        (&[REDIS], &["store.url: the URL cannot be used"]),
        (&[CACHE], &["redis.url: the URL cannot be used"]),
        (&[CERTIFICATES], &certificates),
        (&[CACHE, &[("REDIS__URL", "")]], &["redis.url: must be set"]),
        (&[POSTGRES, CACHE, CERTIFICATES, LEASE], &all),
    ];

    for (settings, mistakes) in cases {
        for arguments in [&["config", "print"][..], &["serve"]] {
            assert_mistakes(arguments, None, settings, mistakes);
        }
    }
}

#[test]
fn missing_key_is_a_mistake_of_serve_only() {
    let key = Some("POSTHASTE__AUTH__HS256_SECRET");

    assert_mistakes(&["serve"], key, &[LEASE], &["outbox.lease ", "no key to verify tokens with: "]);
    assert_mistakes(&["config", "print"], key, &[LEASE], &["outbox.lease "]);
    assert_mistakes(&["config", "print"], key, &[], &[]);
    // A key that cannot be read is one mistake.
    let unreadable: Settings = &[("AUTH__HS256_SECRET_FILE", "/no/such.key")];
    assert_mistakes(&["serve"], key, &[unreadable], &["auth.hs256_secret_file "]);
}
