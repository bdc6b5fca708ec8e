//! The data folder itself: a damaged file, a folder that is none, one that another process holds.
use std::time::{Duration, Instant};

use crate::ground::Ground;
use crate::process::{Posthaste, command, finish};

#[test]
fn a_damaged_file_is_told_clearly_and_left_as_it_is() {
    let ground = Ground::new();
    std::fs::create_dir_all(ground.data()).expect("a folder");
    let garbage = b"this is no database at all, but somebody's letters".repeat(200);
    let name = {
        let other = Ground::new();
        Posthaste::start(&other, &[]).stop();
        let files = std::fs::read_dir(other.data()).expect("a folder");
        let mut names = files.map(|file| file.expect("a file").file_name().into_string().expect("UTF-8"));
        names.find(|name| name.ends_with(".db") || name.ends_with(".sqlite")).expect("a database file")
    };
    std::fs::write(ground.data().join(&name), &garbage).expect("written");

    let (code, _, stderr) = finish(&mut command(&ground, &["serve"]));

    assert_eq!(code, 1);
    assert!(stderr.contains(&name) && stderr.contains("damaged"), "{stderr}");
    assert_eq!(std::fs::read(ground.data().join(&name)).expect("read"), garbage, "it was not touched");
}

#[test]
fn a_folder_that_cannot_be_one_is_told_clearly() {
    let ground = Ground::new();
    std::fs::write(ground.data(), "a file where the folder should be").expect("written");

    let (code, _, stderr) = finish(&mut command(&ground, &["serve"]));

    assert_eq!(code, 1);
    assert!(stderr.contains(&ground.data().display().to_string()), "{stderr}");
}

#[test]
fn a_second_process_on_the_same_folder_is_refused_and_told_who_holds_it() {
    let ground = Ground::new();
    let service = Posthaste::start(&ground, &[("POSTHASTE__INSTANCE__ID", "the-first")]);

    let begun = Instant::now();
    let (code, _, stderr) = finish(command(&ground, &["serve"]).env("POSTHASTE__INSTANCE__ID", "the-second"));

    assert!(
        code == 1 && begun.elapsed() < kit::wait::scaled(Duration::from_secs(5)),
        "{code} after {:?}",
        begun.elapsed()
    );
    let (pid, address) = (format!("pid {}", service.pid()), service.http.base().trim_start_matches("http://"));
    for told in ["the-first", &pid, &ground.data().display().to_string(), address] {
        assert!(stderr.contains(told), "{told} is missing in: {stderr}");
    }
    assert_eq!(service.http.get("/readyz", None).status, 200, "the first goes on");
}
