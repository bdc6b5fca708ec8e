//! A client's record of its orders, and the view of them over HTTP.
use std::collections::BTreeMap;

use domain::Status;
use serde_json::Value;

use crate::harness::http::Http;

/// An order that a client tried to create, with the changes that were acknowledged.
#[derive(Clone, Debug, Default)]
pub struct ClientOrder {
    /// The client's own name for it; the order carries it as its product name.
    pub label: String,
    /// Its id; none until a create is acknowledged.
    pub id: Option<String>,
    /// Acknowledged states; the index is the version.
    pub acknowledged: Vec<Status>,
    /// One more change (or the creation) with an unknown outcome that the client does not resolve.
    pub unknown: Option<Status>,
}

impl ClientOrder {
    /// The states that it may have gone through: all acknowledged ones, and perhaps the unknown one.
    pub fn states(&self) -> Vec<Status> {
        self.acknowledged.iter().copied().chain(self.unknown).collect()
    }
}

/// The fields of an order that HTTP shows and clients compare.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderView {
    pub label: String,
    pub status: Status,
    pub version: u64,
}

impl OrderView {
    pub fn of(order: &Value) -> Self {
        Self {
            label: order["items"][0]["productName"].as_str().expect("a product").to_owned(),
            status: Status::parse(order["status"].as_str().expect("a status")).expect("a known status"),
            version: order["version"].as_u64().expect("a version"),
        }
    }
}

/// Every order of a caller, read page by page.
pub fn read_back(endpoint: &Http, token: &str) -> BTreeMap<String, OrderView> {
    let (mut all, mut path) = (BTreeMap::new(), "/orders/page?after=&size=500".to_owned());
    loop {
        let page = endpoint.get(&path, Some(token));
        assert_eq!(page.status, 200, "{}", page.text);
        for order in page.json()["orders"].as_array().expect("orders") {
            all.insert(order["id"].as_str().expect("an id").to_owned(), OrderView::of(order));
        }
        let next = page.header("link").filter(|link| link.contains("rel=\"next\""));
        let Some(next) = next.and_then(|link| link.split(['<', '>']).nth(1)) else { return all };
        path = next.to_owned();
    }
}
