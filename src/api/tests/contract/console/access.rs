//! Access to the console: log-in, sessions, CSRF tokens, and the headers of every response.
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use actix_web::App;
use actix_web::body::MessageBody;
use actix_web::test::{TestRequest, call_service, init_service};
use api::{Surface, TrustedProxies};
use serde_json::json;

use crate::support::test_server::*;

pub const PAGES: [&str; 9] = [
    "",
    "/actors",
    "/actors/relay/partition-worker-7",
    "/outbox",
    "/outbox/2",
    "/outbox/redrive",
    "/dlt",
    "/audit",
    "/events",
];
const MINUTE: i64 = 60_000;

/// A form encoded as browsers do.
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

/// An operator's browser with a session.
pub struct Browser<'a> {
    pub server: &'a TestServer,
    pub cookie: String,
    pub mark: String,
}

impl<'a> Browser<'a> {
    pub async fn log_in(server: &'a TestServer) -> Self {
        let reply = server.send(form("/console/login", &[("token", &token(json!(["ADMIN"])))])).await;
        assert_eq!((reply.status, reply.header("location")), (303, "/console"), "{}", reply.text());
        let cookie = reply.header("set-cookie").split(';').next().unwrap().to_owned();
        let mut browser = Self { server, cookie, mark: String::new() };
        let page = browser.get("/console").await.text();
        browser.mark = page.split("name=\"mark\" value=\"").nth(1).unwrap().split('"').next().unwrap().to_owned();
        browser
    }

    pub async fn get(&self, path: &str) -> TestResponse {
        self.server.send(get(path).insert_header(("cookie", self.cookie.as_str()))).await
    }

    /// Sends a form with the session's CSRF token.
    pub async fn send(&self, path: &str, fields: &[(&str, &str)]) -> TestResponse {
        let fields: Vec<_> = fields.iter().copied().chain([("mark", &*self.mark)]).collect();
        self.server.send(form(path, &fields).insert_header(("cookie", self.cookie.as_str()))).await
    }

    /// Sends a form and follows the redirect to the page with its note.
    pub async fn act(&self, path: &str, fields: &[(&str, &str)]) -> String {
        let reply = self.send(path, fields).await;
        assert_eq!(reply.status, 303, "{}", reply.text());
        let page = self.get(reply.header("location")).await;
        assert_eq!(page.status, 200, "{}", page.text());
        page.text()
    }

    async fn is_logged_in(&self) -> bool {
        self.get("/console").await.status == 200
    }
}

/// Asserts that the response is a page with the required headers, and returns its text.
pub fn page(reply: &TestResponse, status: u16) -> String {
    let text = reply.text();
    assert_eq!(reply.status, status, "{text}");
    assert_eq!(reply.header("content-type"), "text/html; charset=utf-8");
    assert!(text.starts_with("<!DOCTYPE html><html lang=\"en\">") && text.contains("href=\"#main\""), "{text}");
    for inline in ["<style", " style=", "onclick", "javascript:", "http-equiv", "<script>"] {
        assert!(!text.contains(inline), "{inline} in {text}");
    }
    assert_console_headers(reply);
    text
}

fn assert_console_headers(reply: &TestResponse) {
    let policy = "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'; object-src 'none'";
    assert_eq!(reply.header("content-security-policy"), policy);
    assert_eq!(reply.header("x-content-type-options"), "nosniff");
    assert_eq!(reply.header("referrer-policy"), "no-referrer");
    assert_eq!(reply.header("cache-control"), "no-store");
}

#[actix_web::test]
async fn visitors_are_redirected_to_the_login_and_back() {
    let server = TestServer::new();
    for path in PAGES.iter().chain(&["/events/stream"]) {
        let reply = server.send(get(&format!("/console{path}"))).await;
        assert_eq!((reply.status, reply.header("location")), (303, &*format!("/console/login?next=/console{path}")));
        assert_console_headers(&reply);
    }
    let redirected = server.send(get("/console/outbox?status=PARKED&after=3")).await;
    let login = redirected.header("location").to_owned();
    assert_eq!(login, "/console/login?next=/console/outbox%3Fstatus%3DPARKED%26after%3D3");
    assert!(page(&server.send(get(&login)).await, 200).contains(&format!("action=\"{login}\"")));

    let reply = server.send(form(&login, &[("token", &token(json!(["ADMIN"])))])).await;

    assert_eq!((reply.status, reply.header("location")), (303, "/console/outbox?status=PARKED&after=3"));
    let post = server.send(form("/console/outbox/2/park", &[("reason", "x")])).await;
    assert_eq!((post.status, post.header("location")), (303, "/console/login"), "the log-in does not return to a form");
    assert!(server.outbox.audits.lock().is_empty());
}

#[actix_web::test]
async fn a_login_redirects_only_to_console_pages() {
    let server = TestServer::new();
    let elsewhere = [
        "https://evil.example/",
        "//evil.example",
        "/orders",
        "/consoles",
        "%2F%2Fevil",
        "/console%5C..",
        "/console%0D%0Ax:y",
        "/console/../orders",
        "/console/%2e%2e/orders",
        "/console/%252e%252e/orders",
        "/console//evil.example",
    ];
    for next in elsewhere {
        let path = format!("/console/login?next={next}");
        assert!(
            page(&server.send(get(&path)).await, 200).contains("action=\"/console/login?next=/console\""),
            "{next}"
        );
        let reply = server.send(form(&path, &[("token", &token(json!(["ADMIN"])))])).await;
        assert_eq!((reply.status, reply.header("location")), (303, "/console"), "{next}");
    }
}

#[actix_web::test]
async fn a_login_requires_a_valid_admin_token() {
    let server = TestServer::new();
    let log_in = async |token: &str| server.send(form("/console/login", &[("token", token)])).await;
    let expired = mint(&json!({"sub": "root", "roles": ["ADMIN"], "exp": NOW / 1000 - 600}));

    for bad in ["x", &expired] {
        let reply = log_in(bad).await;
        let text = page(&reply, 401);
        assert!(text.contains("name=\"token\"") && !text.contains(bad.get(..20).unwrap_or("no such text")));
        assert!(reply.header("www-authenticate").starts_with("Bearer") && reply.header("set-cookie").is_empty());
    }
    assert!(page(&log_in(&token(json!(["USER"]))).await, 403).contains("roles do not allow"));
    page(&log_in("").await, 400);
    let query = server.send(get(&format!("/console?token={}", token(json!(["ADMIN"]))))).await;
    assert_eq!(query.status, 303, "a token in the URL is ignored");
    let json = server.send(post("/console/login", "{}")).await;
    page(&json, 415);
}

#[actix_web::test]
async fn failed_logins_are_rate_limited_by_address() {
    let server = TestServer::with_config(TestConfig { tokens: 2, ..TestConfig::default() });
    let try_once = async || server.send(form("/console/login", &[("token", "x")])).await;

    page(&try_once().await, 401);
    page(&try_once().await, 401);

    let refused = try_once().await;
    assert!(page(&refused, 429).contains("too many requests") && !refused.header("retry-after").is_empty());
    let requested = server.rate_limiter.requested.lock();
    assert!(requested.iter().all(|name| name.contains("10.1.1.1")), "{requested:?}");
}

#[actix_web::test]
async fn the_cookie_is_restricted_to_the_console_and_hidden_from_scripts() {
    let mut config = TestConfig::default();
    config.options.trusted_proxies = TrustedProxies::parse(&["10.1.1.1"]).unwrap();
    let (server, behind) = (TestServer::new(), TestServer::with_config(config));
    let log_in = || form("/console/login", &[("token", &token(json!(["ADMIN"])))]);

    let plain = server.send(log_in().insert_header(("x-forwarded-proto", "https"))).await;
    let secure = behind.send(log_in().insert_header(("x-forwarded-proto", "https"))).await;

    let (id, rest) = plain.header("set-cookie").split_once("; ").unwrap();
    assert_eq!(rest, "HttpOnly; SameSite=Strict; Path=/console", "the header counts only from a trusted proxy");
    assert!(id.strip_prefix("posthaste_console=").is_some_and(|id| id.len() == 64), "{id}");
    assert!(secure.header("set-cookie").ends_with("; Path=/console; Secure"));
    assert!(behind.send(log_in()).await.header("set-cookie").ends_with("; Path=/console"));
    let page = get("/console").insert_header(("x-forwarded-proto", "https")).insert_header(admin());
    assert!(behind.send(page).await.text().contains("curl -s 'https://localhost:8080/"), "as the operator reaches it");
}

#[actix_web::test]
async fn a_session_ends_when_idle_when_its_token_expires_and_at_logout() {
    let server = TestServer::new();
    let pass = |time: i64| server.dispatch.clock.0.fetch_add(time, SeqCst);

    let idle = Browser::log_in(&server).await;
    pass(4 * MINUTE);
    assert!(idle.is_logged_in().await, "a request restarts the idle time");
    pass(6 * MINUTE);
    assert!(idle.is_logged_in().await);
    pass(MINUTE);
    assert!(!idle.is_logged_in().await, "the token and its leeway have expired");

    server.dispatch.clock.0.store(NOW, SeqCst);
    let long = mint(&json!({"sub": "root", "roles": ["ADMIN"], "exp": NOW / 1000 + 86_400}));
    let reply = server.send(form("/console/login", &[("token", &long)])).await;
    let cookie = reply.header("set-cookie").split(';').next().unwrap().to_owned();
    let long = Browser { server: &server, cookie, mark: String::new() };
    for _ in 0..3 {
        pass(14 * MINUTE);
        assert!(long.is_logged_in().await);
    }
    pass(15 * MINUTE);
    assert!(!long.is_logged_in().await, "no request for 15 minutes");

    server.dispatch.clock.0.store(NOW, SeqCst);
    let (logged_out, logged_in) = (Browser::log_in(&server).await, Browser::log_in(&server).await);
    let out = logged_out.send("/console/logout", &[]).await;
    assert_eq!((out.status, out.header("location")), (303, "/console/login"));
    let deleted: Vec<&str> = out.headers.get_all("set-cookie").map(|value| value.to_str().unwrap()).collect();
    assert!(deleted.iter().all(|cookie| cookie.ends_with("Max-Age=0")), "{deleted:?}");
    assert!(deleted[0].starts_with("posthaste_console=;") && deleted[1].starts_with("posthaste_console_ticket=;"));
    assert!(!logged_out.is_logged_in().await && logged_in.is_logged_in().await);
}

#[actix_web::test]
async fn a_form_of_another_site_logs_no_operator_in() {
    let server = TestServer::new();
    let token = token(json!(["ADMIN"]));
    let log_in = async |site: &'static str| {
        server.send(form("/console/login", &[("token", &token)]).insert_header(("sec-fetch-site", site))).await
    };

    let (foreign, own) = (log_in("cross-site").await, log_in("same-origin").await);

    assert_eq!((foreign.status, own.status), (403, 303));
    assert!(foreign.header("set-cookie").is_empty());
}

#[actix_web::test]
async fn a_session_in_use_ends_twelve_hours_after_its_log_in() {
    let server = TestServer::new();
    let token = mint(&json!({"sub": "root", "roles": ["ADMIN"], "exp": NOW / 1000 + 86_400}));
    let reply = server.send(form("/console/login", &[("token", &token)])).await;
    let cookie = reply.header("set-cookie").split(';').next().unwrap().to_owned();
    let browser = Browser { server: &server, cookie, mark: String::new() };

    let mut hours = 0.0;
    while browser.is_logged_in().await {
        server.dispatch.clock.0.fetch_add(6 * MINUTE, SeqCst);
        hours += 0.1;
        assert!(hours < 24.0, "the session lasts as long as the token");
    }

    assert!((12.0..12.2).contains(&hours), "{hours} hours");
}

#[actix_web::test]
async fn beyond_the_session_limit_the_oldest_session_ends() {
    let server = TestServer::new();
    let (first, second) = (Browser::log_in(&server).await, Browser::log_in(&server).await);
    for _ in 0..99 {
        server.send(form("/console/login", &[("token", &token(json!(["ADMIN"])))])).await;
    }
    assert!(!first.is_logged_in().await && second.is_logged_in().await);
}

#[actix_web::test]
async fn a_form_without_its_sessions_csrf_token_changes_nothing() {
    let server = TestServer::new();
    let (browser, other) = (Browser::log_in(&server).await, Browser::log_in(&server).await);
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
            let reply = server.send(form(&path, &fields).insert_header(("cookie", browser.cookie.as_str()))).await;
            assert!(page(&reply, 403).contains("nothing was changed"), "{path}");
        }
    }
    assert!(
        server.outbox.audits.lock().is_empty()
            && server.dispatch.faults.lock().is_empty()
            && browser.is_logged_in().await
    );
}

#[actix_web::test]
async fn a_bearer_token_replaces_session_and_csrf_token() {
    let server = TestServer::new();
    for path in PAGES {
        page(&server.send(get(&format!("/console{path}")).insert_header(admin())).await, 200);
    }
    let parked = server.send(form("/console/outbox/3/park", &[("reason", "by curl")]).insert_header(admin())).await;
    assert_eq!((parked.status, parked.header("location")), (303, "/console/outbox/3"));
    let audit = server.outbox.audits.lock()[0].clone();
    assert_eq!((&*audit.operator, &*audit.reason), ("root", "by curl"));

    page(&server.send(get("/console").insert_header(user("ann"))).await, 403);
    page(&server.send(get("/console").insert_header(bearer("x"))).await, 401);
    let browser = Browser::log_in(&server).await;
    let both = get("/console").insert_header(("cookie", browser.cookie.as_str())).insert_header(user("ann"));
    page(&server.send(both).await, 403);
}

#[actix_web::test]
async fn console_errors_are_pages() {
    let server = TestServer::new();
    let browser = Browser::log_in(&server).await;
    for path in ["/x", "/", "/outbox/", "/outbox/99", "/dlt/0/99", "/actors/x/y"] {
        page(&browser.get(&format!("/console{path}")).await, 404);
        page(&server.send(get(&format!("/console{path}")).insert_header(admin())).await, 404);
    }
    for path in [
        "/outbox/x",
        "/outbox?status=x",
        "/outbox?key=a%0Ab",
        "/dlt/x/0",
        "/dlt?failureType=x",
        "/outbox/redrive?olderThan=x",
    ] {
        assert!(page(&browser.get(&format!("/console{path}")).await, 400).contains("must be"), "{path}");
    }
    page(&server.send(form("/console/nowhere", &[])).await, 404);
    let refused = server.send(TestRequest::delete().uri("/console")).await;
    assert_eq!((page(&refused, 405).is_empty(), refused.header("allow")), (false, "GET, HEAD, OPTIONS"));
    let options =
        server.send(TestRequest::with_uri("/console/outbox/redrive").method(actix_web::http::Method::OPTIONS)).await;
    assert_eq!((options.status, options.header("allow")), (204, "GET, HEAD, POST, OPTIONS"));
    assert_console_headers(&options);
    let head = TestRequest::with_uri("/console").method(actix_web::http::Method::HEAD).insert_header(admin());
    assert_eq!(server.send(head).await.status, 200);
    assert_eq!(server.send(TestRequest::with_uri("/console").method(actix_web::http::Method::HEAD)).await.status, 303);
    server.send_to(Surface::Public, get("/console")).await.problem(404, "NOT_FOUND");
    assert_eq!(server.send_to(Surface::Admin, get("/console/login")).await.status, 200);
}

#[actix_web::test]
async fn style_and_script_are_public() {
    let server = TestServer::new();
    let script = "text/javascript; charset=utf-8";
    for (name, kind) in [("console.css", "text/css; charset=utf-8"), ("console.js", script), ("theme.js", script)] {
        let reply = server.send(get(&format!("/console/{name}"))).await;
        assert_eq!((reply.status, reply.header("content-type")), (200, kind));
        assert_console_headers(&reply);
        assert!(!reply.text().contains("//cdn") && !reply.text().contains("@import"));
    }
}

#[actix_web::test]
async fn the_stream_resumes_after_the_last_event_and_ends_with_its_session() {
    let server = TestServer::new();
    let browser = Browser::log_in(&server).await;
    let app = init_service(App::new().configure(api::configure(Arc::clone(&server.state), Surface::Both))).await;
    let request = get("/console/events/stream")
        .insert_header(("cookie", browser.cookie.as_str()))
        .insert_header(("last-event-id", "2"));
    let response = call_service(&app, request.to_request()).await;
    assert_eq!(response.status().as_u16(), 200);
    assert_eq!(response.headers().get("content-type").unwrap(), "text/event-stream");
    let mut body = Box::pin(response.into_body());
    let mut next = async || {
        poll_fn(|cx| body.as_mut().poll_next(cx)).await.map(|piece| String::from_utf8(piece.unwrap().to_vec()).unwrap())
    };

    let first = next().await.unwrap();
    assert!(first.contains("id: 3\n") && !first.contains("id: 2\n"), "{first}");
    assert!(next().await.unwrap().contains("id: 4\n"));
    tokio::time::pause();
    assert_eq!(next().await.as_deref(), Some(": keep-alive\n\n"));
    browser.send("/console/logout", &[]).await;
    assert_eq!(next().await, None, "the stream ends after the log-out");
}
