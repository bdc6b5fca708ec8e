//! The console's doors: who comes in, how long, what forms must carry, and what every answer carries.
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use actix_web::App;
use actix_web::body::MessageBody;
use actix_web::test::{TestRequest, call_service, init_service};
use api::{Proxies, Surface};
use serde_json::json;

use crate::house::*;

pub const PAGES: [&str; 7] = ["", "/actors", "/outbox", "/outbox/2", "/outbox/redrive", "/dlt", "/events"];
const MINUTE: i64 = 60_000;

/// A form as a browser sends it.
pub fn form(path: &str, fields: &[(&str, &str)]) -> TestRequest {
    let encoded = |text: &str| text.bytes().map(|byte| format!("%{byte:02x}")).collect::<String>();
    let pair = |(name, value): &(&str, &str)| format!("{}={}", encoded(name), encoded(value));
    let body = fields.iter().map(pair).collect::<Vec<_>>().join("&");
    TestRequest::post()
        .uri(path)
        .peer_addr("10.1.1.1:5".parse().unwrap())
        .insert_header(("content-type", "application/x-www-form-urlencoded"))
        .insert_header(("content-length", body.len()))
        .set_payload(body)
}

fn token(roles: serde_json::Value) -> String {
    mint(&claims("root", roles))
}

/// Somebody who is logged in.
pub struct Browser<'a> {
    pub house: &'a House,
    pub cookie: String,
    pub mark: String,
}

impl<'a> Browser<'a> {
    pub async fn log_in(house: &'a House) -> Self {
        let reply = house.ask(form("/console/login", &[("token", &token(json!(["ADMIN"])))])).await;
        assert_eq!((reply.status, reply.header("location")), (303, "/console"), "{}", reply.text());
        let cookie = reply.header("set-cookie").split(';').next().unwrap().to_owned();
        let mut browser = Self { house, cookie, mark: String::new() };
        let page = browser.get("/console").await.text();
        browser.mark = page.split("name=\"mark\" value=\"").nth(1).unwrap().split('"').next().unwrap().to_owned();
        browser
    }

    pub async fn get(&self, path: &str) -> Reply {
        self.house.ask(get(path).insert_header(("cookie", self.cookie.as_str()))).await
    }

    /// Sends a form with the session's mark.
    pub async fn send(&self, path: &str, fields: &[(&str, &str)]) -> Reply {
        let fields: Vec<_> = fields.iter().copied().chain([("mark", &*self.mark)]).collect();
        self.house.ask(form(path, &fields).insert_header(("cookie", self.cookie.as_str()))).await
    }

    /// The same, and where it leads: the page with its note.
    pub async fn act(&self, path: &str, fields: &[(&str, &str)]) -> String {
        let reply = self.send(path, fields).await;
        assert_eq!(reply.status, 303, "{}", reply.text());
        let page = self.get(reply.header("location")).await;
        assert_eq!(page.status, 200, "{}", page.text());
        page.text()
    }

    async fn is_in(&self) -> bool {
        self.get("/console").await.status == 200
    }
}

/// Holds an answer to be a page with all that pages carry.
pub fn page(reply: &Reply, status: u16) -> String {
    let text = reply.text();
    assert_eq!(reply.status, status, "{text}");
    assert_eq!(reply.header("content-type"), "text/html; charset=utf-8");
    assert!(text.starts_with("<!DOCTYPE html><html lang=\"en\">") && text.contains("href=\"#main\""), "{text}");
    for inline in ["<style", " style=", "onclick", "javascript:", "http-equiv", "<script>"] {
        assert!(!text.contains(inline), "{inline} in {text}");
    }
    guarded(reply);
    text
}

fn guarded(reply: &Reply) {
    let policy = "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'; object-src 'none'";
    assert_eq!(reply.header("content-security-policy"), policy);
    assert_eq!(reply.header("x-content-type-options"), "nosniff");
    assert_eq!(reply.header("referrer-policy"), "no-referrer");
    assert_eq!(reply.header("cache-control"), "no-store");
}

#[actix_web::test]
async fn who_is_not_logged_in_is_led_to_the_login_and_back() {
    let house = House::new();
    for path in PAGES.iter().chain(&["/events/stream"]) {
        let reply = house.ask(get(&format!("/console{path}"))).await;
        assert_eq!((reply.status, reply.header("location")), (303, &*format!("/console/login?next=/console{path}")));
        guarded(&reply);
    }
    let asked = house.ask(get("/console/outbox?status=PARKED&after=3")).await;
    let login = asked.header("location").to_owned();
    assert_eq!(login, "/console/login?next=/console/outbox%3Fstatus%3DPARKED%26after%3D3");
    assert!(page(&house.ask(get(&login)).await, 200).contains(&format!("action=\"{login}\"")));

    let reply = house.ask(form(&login, &[("token", &token(json!(["ADMIN"])))])).await;

    assert_eq!((reply.status, reply.header("location")), (303, "/console/outbox?status=PARKED&after=3"));
    let post = house.ask(form("/console/outbox/2/park", &[("reason", "x")])).await;
    assert_eq!((post.status, post.header("location")), (303, "/console/login"), "a form is not returned to");
    assert!(house.rows.audits.lock().is_empty());
}

#[actix_web::test]
async fn nobody_is_led_elsewhere_after_the_login() {
    let house = House::new();
    let elsewhere = [
        "https://evil.example/",
        "//evil.example",
        "/orders",
        "/consoles",
        "%2F%2Fevil",
        "/console%5C..",
        "/console%0D%0Ax:y",
    ];
    for next in elsewhere {
        let path = format!("/console/login?next={next}");
        assert!(page(&house.ask(get(&path)).await, 200).contains("action=\"/console/login?next=/console\""), "{next}");
        let reply = house.ask(form(&path, &[("token", &token(json!(["ADMIN"])))])).await;
        assert_eq!((reply.status, reply.header("location")), (303, "/console"), "{next}");
    }
}

#[actix_web::test]
async fn a_login_wants_a_token_that_holds_and_an_admin() {
    let house = House::new();
    let log_in = async |token: &str| house.ask(form("/console/login", &[("token", token)])).await;
    let expired = mint(&json!({"sub": "root", "roles": ["ADMIN"], "exp": NOW / 1000 - 600}));

    for bad in ["x", &expired] {
        let reply = log_in(bad).await;
        let text = page(&reply, 401);
        assert!(text.contains("name=\"token\"") && !text.contains(bad.get(..20).unwrap_or("no such text")));
        assert!(reply.header("www-authenticate").starts_with("Bearer") && reply.header("set-cookie").is_empty());
    }
    assert!(page(&log_in(&token(json!(["USER"]))).await, 403).contains("roles do not allow"));
    page(&log_in("").await, 400);
    let query = house.ask(get(&format!("/console?token={}", token(json!(["ADMIN"]))))).await;
    assert_eq!(query.status, 303, "a token in an address is no token");
    let json = house.ask(post("/console/login", "{}")).await;
    page(&json, 415);
}

#[actix_web::test]
async fn wrong_tries_are_counted_by_address() {
    let house = House::planned(Plan { tokens: 2, ..Plan::default() });
    let try_once = async || house.ask(form("/console/login", &[("token", "x")])).await;

    page(&try_once().await, 401);
    page(&try_once().await, 401);

    let refused = try_once().await;
    assert!(page(&refused, 429).contains("too many requests") && !refused.header("retry-after").is_empty());
    let asked = house.bucket.asked.lock();
    assert!(asked.iter().all(|name| name.contains("10.1.1.1")), "{asked:?}");
}

#[actix_web::test]
async fn the_cookie_is_kept_from_scripts_other_sites_and_other_paths() {
    let mut plan = Plan::default();
    plan.options.trusted_proxies = Proxies::parse(&["10.1.1.1"]).unwrap();
    let (house, behind) = (House::new(), House::planned(plan));
    let log_in = || form("/console/login", &[("token", &token(json!(["ADMIN"])))]);

    let plain = house.ask(log_in().insert_header(("x-forwarded-proto", "https"))).await;
    let secure = behind.ask(log_in().insert_header(("x-forwarded-proto", "https"))).await;

    let (id, rest) = plain.header("set-cookie").split_once("; ").unwrap();
    assert_eq!(rest, "HttpOnly; SameSite=Strict; Path=/console", "anybody may say https");
    assert!(id.strip_prefix("posthaste_console=").is_some_and(|id| id.len() == 64), "{id}");
    assert!(secure.header("set-cookie").ends_with("; Path=/console; Secure"));
    assert!(behind.ask(log_in()).await.header("set-cookie").ends_with("; Path=/console"));
}

#[actix_web::test]
async fn a_session_ends_with_idleness_with_its_token_and_with_a_logout() {
    let house = House::new();
    let pass = |time: i64| house.desk.clock.0.fetch_add(time, SeqCst);

    let idle = Browser::log_in(&house).await;
    pass(4 * MINUTE);
    assert!(idle.is_in().await, "and it slides");
    pass(6 * MINUTE);
    assert!(idle.is_in().await);
    pass(MINUTE);
    assert!(!idle.is_in().await, "the token has expired, and its minute of leeway");

    house.desk.clock.0.store(NOW, SeqCst);
    let long = mint(&json!({"sub": "root", "roles": ["ADMIN"], "exp": NOW / 1000 + 86_400}));
    let reply = house.ask(form("/console/login", &[("token", &long)])).await;
    let cookie = reply.header("set-cookie").split(';').next().unwrap().to_owned();
    let long = Browser { house: &house, cookie, mark: String::new() };
    for _ in 0..3 {
        pass(14 * MINUTE);
        assert!(long.is_in().await);
    }
    pass(15 * MINUTE);
    assert!(!long.is_in().await, "nobody asked for a quarter of an hour");

    house.desk.clock.0.store(NOW, SeqCst);
    let (leaves, stays) = (Browser::log_in(&house).await, Browser::log_in(&house).await);
    let out = leaves.send("/console/logout", &[]).await;
    assert_eq!((out.status, out.header("location")), (303, "/console/login"));
    assert!(out.header("set-cookie").ends_with("Max-Age=0"));
    assert!(!leaves.is_in().await && stays.is_in().await);
}

#[actix_web::test]
async fn of_too_many_sessions_the_oldest_leaves() {
    let house = House::new();
    let (first, second) = (Browser::log_in(&house).await, Browser::log_in(&house).await);
    for _ in 0..99 {
        house.ask(form("/console/login", &[("token", &token(json!(["ADMIN"])))])).await;
    }
    assert!(!first.is_in().await && second.is_in().await);
}

#[actix_web::test]
async fn a_form_without_the_mark_of_its_session_does_nothing() {
    let house = House::new();
    let (browser, other) = (Browser::log_in(&house).await, Browser::log_in(&house).await);
    let paths = [
        "outbox/2/park",
        "outbox/2/retry",
        "outbox/redrive",
        "dlt/0/0/redrive",
        "dlt/redrive",
        "actors/fault",
        "logout",
    ];
    for path in paths {
        let path = format!("/console/{path}");
        let fields = [("reason", "x"), ("matched", "1"), ("path", "/consumer-0"), ("action", "panic")];
        for mark in [None, Some(""), Some("x"), Some(&*other.mark)] {
            let fields: Vec<_> = fields.into_iter().chain(mark.map(|mark| ("mark", mark))).collect();
            let reply = house.ask(form(&path, &fields).insert_header(("cookie", browser.cookie.as_str()))).await;
            assert!(page(&reply, 403).contains("nothing was changed"), "{path}");
        }
    }
    assert!(house.rows.audits.lock().is_empty() && house.desk.faults.lock().is_empty() && browser.is_in().await);
}

#[actix_web::test]
async fn a_token_in_the_header_will_do_and_needs_no_mark() {
    let house = House::new();
    for path in PAGES {
        page(&house.ask(get(&format!("/console{path}")).insert_header(admin())).await, 200);
    }
    let parked = house.ask(form("/console/outbox/3/park", &[("reason", "by curl")]).insert_header(admin())).await;
    assert_eq!((parked.status, parked.header("location")), (303, "/console/outbox/3"));
    let audit = house.rows.audits.lock()[0].clone();
    assert_eq!((&*audit.operator, &*audit.reason), ("root", "by curl"));

    page(&house.ask(get("/console").insert_header(user("ann"))).await, 403);
    page(&house.ask(get("/console").insert_header(bearer("x"))).await, 401);
    let browser = Browser::log_in(&house).await;
    let both = get("/console").insert_header(("cookie", browser.cookie.as_str())).insert_header(user("ann"));
    page(&house.ask(both).await, 403);
}

#[actix_web::test]
async fn what_is_not_there_is_told_on_a_page() {
    let house = House::new();
    let browser = Browser::log_in(&house).await;
    for path in ["/x", "/", "/outbox/", "/outbox/99", "/dlt/0/99", "/actors/x/y"] {
        page(&browser.get(&format!("/console{path}")).await, 404);
        page(&house.ask(get(&format!("/console{path}")).insert_header(admin())).await, 404);
    }
    for path in [
        "/outbox/x",
        "/outbox?status=x",
        "/outbox?key=x",
        "/dlt/x/0",
        "/dlt?failureType=x",
        "/outbox/redrive?olderThan=x",
    ] {
        assert!(page(&browser.get(&format!("/console{path}")).await, 400).contains("must be"), "{path}");
    }
    page(&house.ask(form("/console/nowhere", &[])).await, 404);
    let refused = house.ask(TestRequest::delete().uri("/console")).await;
    assert_eq!((page(&refused, 405).is_empty(), refused.header("allow")), (false, "GET, HEAD, OPTIONS"));
    let options =
        house.ask(TestRequest::with_uri("/console/outbox/redrive").method(actix_web::http::Method::OPTIONS)).await;
    assert_eq!((options.status, options.header("allow")), (204, "GET, HEAD, POST, OPTIONS"));
    guarded(&options);
    let head = TestRequest::with_uri("/console").method(actix_web::http::Method::HEAD).insert_header(admin());
    assert_eq!(house.ask(head).await.status, 200);
    assert_eq!(house.ask(TestRequest::with_uri("/console").method(actix_web::http::Method::HEAD)).await.status, 303);
    house.ask_at(Surface::Public, get("/console")).await.problem(404, "NOT_FOUND");
    assert_eq!(house.ask_at(Surface::Admin, get("/console/login")).await.status, 200);
}

#[actix_web::test]
async fn the_style_and_the_script_are_open_to_all() {
    let house = House::new();
    for (name, kind) in [("console.css", "text/css; charset=utf-8"), ("console.js", "text/javascript; charset=utf-8")] {
        let reply = house.ask(get(&format!("/console/{name}"))).await;
        assert_eq!((reply.status, reply.header("content-type")), (200, kind));
        guarded(&reply);
        assert!(!reply.text().contains("//cdn") && !reply.text().contains("@import"));
    }
}

#[actix_web::test]
async fn the_stream_resumes_behind_the_last_event_seen_and_ends_with_its_session() {
    let house = House::new();
    let browser = Browser::log_in(&house).await;
    let app = init_service(App::new().configure(api::configure(Arc::clone(&house.state), Surface::Both))).await;
    let question = get("/console/events/stream")
        .insert_header(("cookie", browser.cookie.as_str()))
        .insert_header(("last-event-id", "2"));
    let answer = call_service(&app, question.to_request()).await;
    assert_eq!(answer.status().as_u16(), 200);
    assert_eq!(answer.headers().get("content-type").unwrap(), "text/event-stream");
    let mut body = Box::pin(answer.into_body());
    let mut next = async || {
        poll_fn(|cx| body.as_mut().poll_next(cx)).await.map(|piece| String::from_utf8(piece.unwrap().to_vec()).unwrap())
    };

    let first = next().await.unwrap();
    assert!(first.contains("id: 3\n") && !first.contains("id: 2\n"), "{first}");
    assert!(next().await.unwrap().contains("id: 4\n"));
    tokio::time::pause();
    assert_eq!(next().await.as_deref(), Some(": keep-alive\n\n"));
    browser.send("/console/logout", &[]).await;
    assert_eq!(next().await, None, "whoever logged out hears no more");
}
