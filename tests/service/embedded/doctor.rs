//! `posthaste doctor` on the embedded store finds each fault that a test plants, names it, and exits with 1.
use kit::wait::until;
use serde_json::json;

use crate::harness::backend::Backend;
use crate::harness::http::tea_order;
use crate::harness::process::{Posthaste, command, finish};

#[track_caller]
fn assert_found(backend: &Backend, environment: &[(&str, &str)], finding: &str) {
    let (code, stdout, stderr) = finish(command(backend, &["doctor"]).envs(environment.iter().copied()));
    let found = stdout.lines().any(|line| line.starts_with("BAD  ") && line.contains(finding));
    assert!(code == 1 && found, "{finding} is missing: {code} {stdout}{stderr}");
}

#[test]
fn a_full_volume_is_found() {
    let backend = Backend::new();

    // The file system of processes has no free block.
    assert_found(&backend, &[("POSTHASTE__STORE__PATH", "/proc/self")], "disk_space: 0 MiB are free");
}

#[test]
fn a_public_or_missing_secret_is_found() {
    let backend = Backend::new();
    Posthaste::start(&backend, &[]).stop();

    let development = "posthaste-development-secret-known-to-everyone";
    assert_found(&backend, &[("POSTHASTE__AUTH__HS256_SECRET", development)], "auth: the development secret is public");
    let (code, stdout, _) = finish(command(&backend, &["doctor"]).env_remove("POSTHASTE__AUTH__HS256_SECRET"));
    assert!(code == 1 && stdout.contains("BAD  auth: no key is set"), "{stdout}");
    assert!(stdout.trim_end().ends_with("1 problem"), "the last line sums up: {stdout}");
}

#[test]
fn a_parked_row_is_found() {
    let backend = Backend::new();
    let service = Posthaste::start(&backend, &[("POSTHASTE__BROKER__KIND", "none")]);
    service.http.post("/orders", &service.http.user(), &[], &tea_order(1));
    let row = service.rows(&["PENDING"])[0]["id"].clone();
    let parked = service.http.post(&format!("/admin/outbox/{row}/park"), &service.http.admin(), &[], &json!({}));
    assert_eq!(parked.status, 200, "{}", parked.text);

    assert_found(&backend, &[], "outbox: 0 waiting (oldest 0 s), 0 in flight, 1 parked");
}

#[test]
fn an_instance_that_takes_no_partition_is_found() {
    let backend = Backend::new();
    let service = Posthaste::start(&backend, &[("POSTHASTE__OUTBOX__PUBLISHER__ENABLED", "false")]);
    let arguments = ["doctor", "--url", service.http.base()];

    let (code, stdout, stderr) = finish(&mut command(&backend, &arguments));

    let expected = "BAD  partitions: none is owned: an instance runs but takes no partition";
    assert!(code == 1 && stdout.contains(expected) && stdout.contains("ok   service: ready"), "{stdout}{stderr}");
    service.stop();
    let (code, stdout, stderr) = finish(&mut command(&backend, &["doctor"]));
    assert!(code == 0 && stdout.contains("ok   partitions: none is owned: no instance runs"), "{stdout}{stderr}");
}

#[test]
fn a_store_of_a_later_program_is_found() {
    let backend = Backend::new();
    Posthaste::start(&backend, &[]).stop();
    let file = backend.data_folder().join("posthaste.db");
    let later = rusqlite::Connection::open(file).expect("the file exists");
    until("the version is written", std::time::Duration::from_secs(20), || {
        later.pragma_update(None, "user_version", 1_000).ok()
    });

    assert_found(&backend, &[], "store: ");
}

#[test]
fn doctor_queries_a_running_service_and_accepts_its_development_secret() {
    let backend = Backend::new();
    let mut development = command(&backend, &["serve", "--dev"]);
    let service = Posthaste::start_prepared(development.env_remove("POSTHASTE__AUTH__HS256_SECRET"));
    let url = service.http.base().to_owned();
    let doctor = || finish(command(&backend, &["doctor", "--url", &url]).env_remove("POSTHASTE__AUTH__HS256_SECRET"));

    // Partitions are acquired one by one after the service is ready.
    let stdout = until("the doctor finds no problem", std::time::Duration::from_secs(30), || {
        let (code, stdout, _) = doctor();
        (code == 0).then_some(stdout)
    });

    assert!(stdout.contains(&format!("ok   service: ready at {url}, version 0.1.0")), "{stdout}");
    assert!(stdout.contains("ok   auth: the service runs with --dev"), "{stdout}");
    assert!(stdout.trim_end().ends_with("no problem"), "{stdout}");
    service.stop();
    let (code, stdout, _) = doctor();
    assert!(code == 1 && stdout.contains("BAD  service: no service answers at"), "{stdout}");
}
