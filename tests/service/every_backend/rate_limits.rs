//! Rate limits of tiers from the configuration: they need no Redis, also to be changed at run time.
use std::fs;
use std::time::Duration;

use kit::wait::until;

use crate::harness::backend::Backend;
use crate::harness::http::tea_order;
use crate::harness::process::Posthaste;

#[test]
fn a_configured_policy_limits_its_tier_and_class_only() {
    let backend = Backend::new();
    let settings = [
        ("POSTHASTE__RATE_LIMIT__ENABLED", "true"),
        ("POSTHASTE__RATE_LIMIT__CAPACITY", "1000"),
        ("POSTHASTE__RATE_LIMIT__WINDOW", "24h"),
        ("POSTHASTE__RATE_LIMIT__POLICIES", "gold:write=8/24h,gold:read=80/12h"),
    ];
    let service = Posthaste::start(&backend, &settings);
    let [gold, silver] = ["gold", "silver"].map(|tier| service.http.token_of_tier("ann", "USER", tier));
    let post = |token: &str| service.http.post("/orders", token, &[], &tea_order(1));
    let policy = |response: &crate::harness::http::Response| response.header("ratelimit-policy").map(str::to_owned);

    let responses: Vec<_> = (0..11).map(|_| post(&gold)).collect();

    let statuses: Vec<u16> = responses.iter().map(|response| response.status).collect();
    assert_eq!(statuses, [[201; 10].as_slice(), &[429]].concat(), "a bucket holds a quarter more than its capacity");
    assert_eq!(policy(&responses[0]).as_deref(), Some("\"gold:write\";q=8;w=86400"));
    let read = service.http.get("/orders", Some(&gold));
    assert_eq!((read.status, policy(&read).as_deref()), (200, Some("\"gold:read\";q=80;w=43200")));
    assert_eq!(policy(&post(&silver)).as_deref(), Some("\"default\";q=1000;w=86400"));
    let metrics = service.http.get("/metrics", None).text;
    assert!(metrics.contains("rate_limit_rejections_by_policy_total{policy=\"gold:write\"} 1"), "{metrics}");
}

#[test]
fn limits_that_change_in_the_file_hold_after_sighup() {
    let backend = Backend::new();
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    let write = |text: &str| fs::write(file.path(), text).expect("the file is written");
    write("[rate_limit]\nenabled = true\ncapacity = 1000\nwindow = \"24h\"\npolicies = \"gold:write=500/24h\"\n");
    let service = Posthaste::start_with_file(&backend, file.path());
    let [gold, silver] = ["gold", "silver"].map(|tier| service.http.token_of_tier("ann", "USER", tier));
    let policy = |token: &str| {
        let created = service.http.post("/orders", token, &[], &tea_order(1));
        assert_eq!(created.status, 201, "{}", created.text);
        created.header("ratelimit-policy").map(str::to_owned)
    };
    assert_eq!(policy(&gold).as_deref(), Some("\"gold:write\";q=500;w=86400"));

    let reload = |event: &str, count: usize| {
        service.signal("HUP");
        until("the configuration was read", Duration::from_secs(10), || {
            let logged = service.logged(event);
            (logged.len() == count).then(|| logged[count - 1].clone())
        })
    };
    write(
        "[rate_limit]\nenabled = true\ncapacity = 90\nwindow = \"1h\"\npolicies = \"gold:write=8/12h\"\n\n[orders]\nshards = 3\n",
    );
    let reloaded = reload("configuration_reloaded", 1);
    assert_eq!(reloaded["applied"], "rate_limit.capacity,rate_limit.policies,rate_limit.window");
    assert_eq!(reloaded["restart_needed"], "orders.shards");
    assert_eq!(policy(&gold).as_deref(), Some("\"gold:write\";q=8;w=43200"));
    assert_eq!(policy(&silver).as_deref(), Some("\"default\";q=90;w=3600"));

    write("[rate_limit]\ncapacity = -1\n");
    let rejected = reload("configuration_rejected", 1);
    assert!(rejected["error"].as_str().is_some_and(|error| error.contains("rate_limit.capacity")), "{rejected}");
    assert_eq!(policy(&silver).as_deref(), Some("\"default\";q=90;w=3600"), "the limits stay as they were");
}
