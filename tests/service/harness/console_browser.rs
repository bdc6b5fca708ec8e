//! A browser on the console: forms, a session cookie, pages and the event stream.
use std::io::{BufRead, BufReader};
use std::time::Duration;

use kit::wait::scaled;

use crate::harness::process::Posthaste;

/// A logged-in browser that follows no redirect by itself.
pub struct Browser {
    agent: ureq::Agent,
    base: String,
    cookie: String,
    form_token: String,
}

/// A response of the console.
pub struct Page {
    pub status: u16,
    pub location: String,
    cookie: String,
    pub text: String,
}

impl Browser {
    pub fn log_in(service: &Posthaste) -> Self {
        let config = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .timeout_global(Some(scaled(Duration::from_secs(60))))
            .build();
        let base = service.http.base().to_owned();
        let mut browser = Self { agent: config.into(), base, cookie: String::new(), form_token: String::new() };
        let login = browser.get("/console/actors");
        assert_eq!((login.status, &*login.location), (303, "/console/login?next=/console/actors"));
        let session = browser.send(&login.location, &[("token", &service.http.admin())]);
        assert_eq!((session.status, &*session.location), (303, "/console/actors"), "{}", session.text);
        browser.cookie = session.cookie.split(';').next().expect("a cookie").to_owned();
        let page = browser.get("/console").text;
        let form_token = page.split("name=\"mark\" value=\"").nth(1).and_then(|rest| rest.split('"').next());
        browser.form_token = form_token.expect("a form token").to_owned();
        browser
    }

    fn request(&self, path: &str) -> ureq::http::request::Builder {
        ureq::http::Request::builder().uri(format!("{}{path}", self.base)).header("Cookie", &self.cookie)
    }

    pub fn get(&self, path: &str) -> Page {
        page(self.agent.run(self.request(path).body(()).expect("a legal request")).expect("a response"))
    }

    pub fn send(&self, path: &str, fields: &[(&str, &str)]) -> Page {
        let encoded = |text: &str| text.bytes().map(|byte| format!("%{byte:02x}")).collect::<String>();
        let form_token = [("mark", &*self.form_token)];
        let pairs = fields.iter().chain(&form_token).map(|(name, value)| format!("{name}={}", encoded(value)));
        let body = pairs.collect::<Vec<_>>().join("&");
        let request = self.request(path).method("POST").header("Content-Type", "application/x-www-form-urlencoded");
        page(self.agent.run(request.body(body).expect("a legal request")).expect("a response"))
    }

    /// Submits a form and follows the redirect to the page with the result.
    pub fn submit(&self, path: &str, fields: &[(&str, &str)]) -> String {
        let response = self.send(path, fields);
        assert_eq!(response.status, 303, "{path}: {}", response.text);
        let page = self.get(&response.location);
        assert_eq!(page.status, 200, "{}", page.text);
        page.text
    }

    /// The event stream after an event id, line by line.
    pub fn stream(&self, after: &str) -> impl Iterator<Item = String> + use<> {
        let request = self.request("/console/events/stream").header("Last-Event-ID", after);
        let response = self.agent.run(request.body(()).expect("a legal request")).expect("a response");
        assert_eq!(response.status(), 200);
        BufReader::new(response.into_body().into_reader()).lines().map(|line| line.expect("the stream continues"))
    }

    /// The entry of an actor on the actors page.
    pub fn actor(&self, path: &str) -> String {
        let page = self.get("/console/actors").text;
        let row = page.split("<details class=\"actor\"").find(|row| row.contains(&format!("data-path=\"{path}\"")));
        row.unwrap_or_else(|| panic!("{path} is not in {page}")).to_owned()
    }
}

fn page(mut response: ureq::http::Response<ureq::Body>) -> Page {
    let header = |name: &str| response.headers().get(name).map_or("", |value| value.to_str().expect("text")).to_owned();
    let (location, cookie) = (header("location"), header("set-cookie"));
    let text = response.body_mut().read_to_string().expect("text");
    Page { status: response.status().as_u16(), location, cookie, text }
}
