//! The data folder: a damaged file, a path that is not a folder, and a folder that another process holds.
use std::time::{Duration, Instant};

use kit::wait::until;

use crate::harness::backend::Backend;
use crate::harness::process::{Posthaste, command, finish};

#[test]
fn a_damaged_file_is_reported_and_not_changed() {
    let backend = Backend::new();
    std::fs::create_dir_all(backend.data_folder()).expect("a folder");
    let garbage = b"this is no database at all, but some other bytes..".repeat(200);
    let name = {
        let other = Backend::new();
        Posthaste::start(&other, &[]).stop();
        let files = std::fs::read_dir(other.data_folder()).expect("a folder");
        let mut names = files.map(|file| file.expect("a file").file_name().into_string().expect("UTF-8"));
        names.find(|name| name.ends_with(".db") || name.ends_with(".sqlite")).expect("a database file")
    };
    std::fs::write(backend.data_folder().join(&name), &garbage).expect("written");

    let (code, _, stderr) = finish(&mut command(&backend, &["serve"]));

    assert_eq!(code, 1);
    assert!(
        stderr.contains(&name) && stderr.contains("damaged") && stderr.contains("restore it from a copy"),
        "{stderr}"
    );
    assert_eq!(std::fs::read(backend.data_folder().join(&name)).expect("read"), garbage, "the file is unchanged");
}

#[test]
fn a_file_in_place_of_the_data_folder_is_reported() {
    let backend = Backend::new();
    std::fs::write(backend.data_folder(), "a file where the folder should be").expect("written");

    let (code, _, stderr) = finish(&mut command(&backend, &["serve"]));

    assert_eq!(code, 1);
    assert!(stderr.contains(&backend.data_folder().display().to_string()), "{stderr}");
    assert!(stderr.contains("store.path must be a folder"), "{stderr}");
}

#[test]
fn another_number_of_partitions_is_a_mistake_of_the_configuration() {
    let backend = Backend::new();
    Posthaste::start(&backend, &[("POSTHASTE__OUTBOX__PARTITIONS", "8")]).stop();

    let (code, _, stderr) = finish(command(&backend, &["serve"]).env("POSTHASTE__OUTBOX__PARTITIONS", "16"));

    assert_eq!(code, 78, "no restart helps: {stderr}");
    assert!(stderr.contains("16") && stderr.contains('8'), "{stderr}");
}

#[test]
fn a_second_process_on_one_data_folder_is_refused_with_the_holders_name() {
    let backend = Backend::new();
    let service = Posthaste::start(&backend, &[("POSTHASTE__INSTANCE__ID", "the-first")]);

    let started = Instant::now();
    let (code, _, stderr) = finish(command(&backend, &["serve"]).env("POSTHASTE__INSTANCE__ID", "the-second"));

    assert!(
        code == 1 && started.elapsed() < kit::wait::scaled(Duration::from_secs(10)),
        "{code} after {:?}",
        started.elapsed()
    );
    let (pid, address) = (format!("pid {}", service.pid()), service.http.base().trim_start_matches("http://"));
    for text in ["the-first", &pid, &backend.data_folder().display().to_string(), address] {
        assert!(stderr.contains(text), "{text} is missing in: {stderr}");
    }
    until("the first process continues", Duration::from_secs(20), || service.is_ready().then_some(()));
}

#[test]
fn writes_are_refused_while_the_data_folder_is_moved_away() {
    let backend = Backend::new();
    let probes = [("POSTHASTE__FAILOVER__PROBE_INTERVAL", "100ms")];
    let service = Posthaste::start(&backend, &probes);
    let elsewhere = backend.data_folder().with_file_name("elsewhere");
    std::fs::rename(backend.data_folder(), &elsewhere).expect("moved");

    until("the region is PASSIVE", Duration::from_secs(30), || (!service.is_ready()).then_some(()));
    let down = until("the cause is logged", Duration::from_secs(30), || {
        let down = service.log_lines(|line| line["event"] == "dependency_down" && line["dependency"] == "db");
        Some(down).filter(|down| !down.is_empty())
    });
    let reason = down[0]["error"].as_str().unwrap_or_default();
    assert!(down.len() == 1 && reason.contains("posthaste.db was deleted, moved or replaced"), "{down:?}");

    std::fs::rename(&elsewhere, backend.data_folder()).expect("moved back");
    until("the region is ACTIVE", Duration::from_secs(30), || service.is_ready().then_some(()));
    service.stop();
}

#[test]
fn signals_end_a_start_that_waits_for_the_store_file() {
    let backend = Backend::new();
    Posthaste::start(&backend, &[]).stop();
    let (lock, file) = (backend.data_folder().join("posthaste.lock"), backend.data_folder().join("posthaste.db"));
    std::fs::remove_file(&lock).expect("the service has stopped");
    let holder = rusqlite::Connection::open(file).expect("the file exists");
    holder.execute_batch("PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE").expect("it is free");

    let mut service = Posthaste::launch(&backend, "serve", &[], "");
    until("the start has locked the folder", Duration::from_secs(20), || lock.exists().then_some(()));
    service.signal("TERM");
    let status = until("a further signal ends it", Duration::from_secs(20), || {
        service.exit().or_else(|| {
            service.signal("INT");
            None
        })
    });

    assert_eq!(status.code(), Some(130), "{}", service.stderr());
}
