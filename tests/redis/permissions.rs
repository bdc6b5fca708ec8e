//! A user of Redis whose ACL lacks a permission.
use crate::harness::backend::Backend;
use crate::harness::http::tea_order;
use crate::harness::process::Posthaste;

#[test]
fn user_without_the_channel_of_wake_ups_is_logged_and_events_leave() {
    let backend = Backend::new();
    // What Redis 7 gives to a new user: no channel.
    backend.redis_command("ACL SETUSER limited on >secret ~* resetchannels +@all");
    let settings = backend.settings();
    let url = &settings.iter().find(|(key, _)| *key == "POSTHASTE__STORE__URL").expect("the URL of Redis").1;
    let limited = url.replacen("redis://", "redis://limited:secret@", 1);
    let service = Posthaste::start(&backend, &[("POSTHASTE__STORE__URL", limited.as_str())]);

    let lines = service.await_logged("wake_listener_interrupted", 1);
    assert!(lines[0]["error"].as_str().is_some_and(|error| error.contains("channel")), "{lines:?}");
    assert_eq!(service.http.post("/orders", &service.http.user(), &[], &tea_order(1)).status, 201);

    backend.redis_command("ACL SETUSER limited allchannels");
    service.await_logged("wake_listener_regained", 1);
    assert_eq!(service.logged("wake_listener_interrupted").len(), 1);
    service.drain();
    assert_eq!(backend.events().len(), 1);
}
