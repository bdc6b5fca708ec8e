//! Rate limits of tiers from the configuration: they need no Redis.
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
