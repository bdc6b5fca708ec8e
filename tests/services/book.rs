//! What clients know of their orders when the dust has settled, and what the service says of them.
use std::collections::BTreeMap;

use domain::Status;
use serde_json::Value;

use crate::http::Http;

/// An order that somebody tried to place, and how far it got.
#[derive(Clone, Debug, Default)]
pub struct Line {
    /// The client's own name for it; the order carries it as its product.
    pub label: String,
    /// Its id, once that was told.
    pub id: Option<String>,
    /// The states it went through, by version, as far as they were told.
    pub told: Vec<Status>,
    /// One more change (or its creation) whose outcome was never told and never asked for.
    pub open: Option<Status>,
}

impl Line {
    /// The states it may have gone through: all that were told, and perhaps the open one.
    pub fn states(&self) -> Vec<Status> {
        self.told.iter().copied().chain(self.open).collect()
    }
}

/// An order as HTTP shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    pub label: String,
    pub status: Status,
    pub version: u64,
}

impl Shown {
    pub fn of(order: &Value) -> Self {
        Self {
            label: order["items"][0]["productName"].as_str().expect("a product").to_owned(),
            status: Status::parse(order["status"].as_str().expect("a status")).expect("a known status"),
            version: order["version"].as_u64().expect("a version"),
        }
    }
}

/// Every order of a caller, page by page.
pub fn read_back(door: &Http, token: &str) -> BTreeMap<String, Shown> {
    let (mut all, mut path) = (BTreeMap::new(), "/orders/page?after=&size=500".to_owned());
    loop {
        let page = door.get(&path, Some(token));
        assert_eq!(page.status, 200, "{}", page.text);
        for order in page.json()["orders"].as_array().expect("orders") {
            all.insert(order["id"].as_str().expect("an id").to_owned(), Shown::of(order));
        }
        let next = page.header("link").filter(|link| link.contains("rel=\"next\""));
        let Some(next) = next.and_then(|link| link.split(['<', '>']).nth(1)) else { return all };
        path = next.to_owned();
    }
}
