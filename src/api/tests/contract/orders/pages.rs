//! The list, numbered pages and keyset pages.
use crate::support::test_server::*;

async fn server_with(orders: usize) -> (TestServer, Vec<String>) {
    let server = TestServer::new();
    let mut ids = Vec::new();
    for _ in 0..orders {
        ids.push(server.create_order("ann").await);
    }
    server.create_order("bob").await;
    ids.reverse();
    (server, ids)
}

fn ids(value: &serde_json::Value) -> Vec<String> {
    value.as_array().unwrap().iter().map(|order| order["id"].as_str().unwrap().to_owned()).collect()
}

#[actix_web::test]
async fn the_list_is_an_array_of_the_callers_orders_newest_first() {
    let (server, placed) = server_with(3).await;

    let mine = server.send(get("/orders?status=").insert_header(user("ann"))).await;
    let all = server.send(get("/orders").insert_header(admin())).await;
    let cancelled = server.send(get("/orders?status=CANCELLED").insert_header(admin())).await;

    assert_eq!(ids(&mine.json()), placed);
    assert_eq!(all.json().as_array().unwrap().len(), 4);
    assert_eq!(cancelled.text(), "[]");
    for bad in ["status=pending", "status=X", "status=PENDING&status=PENDING", "status=%ff", "status%zz=PENDING"] {
        server.send(get(&format!("/orders?{bad}")).insert_header(admin())).await.problem(400, "BAD_REQUEST");
        server.send(get(&format!("/orders/page?{bad}")).insert_header(admin())).await.problem(400, "BAD_REQUEST");
    }
}

#[actix_web::test]
async fn numbered_pages_have_totals_and_links() {
    let (server, placed) = server_with(5).await;
    let page = |query: &str| get(&format!("/orders/page{query}")).insert_header(user("ann"));
    let link = |rel: &str, page: u32| format!("</orders/page?page={page}&size=2>; rel=\"{rel}\"");

    let first = server.send(page("?size=2")).await;
    assert_eq!(ids(&first.json()["orders"]), placed[..2]);
    let body = first.json();
    assert_eq!(
        (&body["page"], &body["size"], &body["totalElements"], &body["totalPages"]),
        (&0.into(), &2.into(), &5.into(), &3.into())
    );
    assert_eq!(first.header("link"), [link("first", 0), link("next", 1), link("last", 2)].join(", "));
    let middle = server.send(page("?size=2&page=1")).await;
    assert_eq!(middle.header("link"), [link("first", 0), link("prev", 0), link("next", 2), link("last", 2)].join(", "));
    let last = server.send(page("?size=2&page=2")).await;
    assert_eq!(ids(&last.json()["orders"]), placed[4..]);
    assert_eq!(last.header("link"), [link("first", 0), link("prev", 1), link("last", 2)].join(", "));
    let beyond = server.send(page("?size=2&page=99999999999999999999")).await;
    assert_eq!(beyond.json()["orders"].as_array().unwrap().len(), 0);
    assert_eq!(beyond.header("link"), [link("first", 0), link("prev", 2), link("last", 2)].join(", "));

    for (query, page_no, size) in [("", 0, 100), ("?page=-3&size=0", 0, 1), ("?size=-9", 0, 1), ("?size=501", 0, 500)] {
        let body = server.send(page(query)).await.json();
        assert_eq!((body["page"].as_u64(), body["size"].as_u64()), (Some(page_no), Some(size)), "{query}");
    }
    for bad in ["page=x", "page=", "page=1.0", "size=1e2", "size=ten", "page=1&page=1", "after=x", "after=&page=x"] {
        server.send(page(&format!("?{bad}"))).await.problem(400, "BAD_REQUEST");
    }
    let filtered = server.send(page("?size=2&status=PENDING")).await;
    assert!(filtered.header("link").starts_with("</orders/page?status=PENDING&page=0&size=2>; rel=\"first\""));
}

#[actix_web::test]
async fn keyset_pages_visit_all_orders_and_link_only_next() {
    let (server, placed) = server_with(5).await;
    let mut seen = Vec::new();
    let mut path = "/orders/page?after=&size=2".to_owned();
    loop {
        let reply = server.send(get(&path).insert_header(user("ann"))).await;
        let body = reply.json();
        assert!(body.get("page").is_none());
        assert_eq!((body["totalElements"].as_u64(), body["totalPages"].as_u64()), (Some(5), Some(3)));
        seen.extend(ids(&body["orders"]));
        let link = reply.header("link").to_owned();
        if link.is_empty() {
            break;
        }
        assert!(link.ends_with(">; rel=\"next\"") && link.matches("rel=").count() == 1, "{link}");
        path = link[1..link.find('>').unwrap()].to_owned();
        assert!(path.contains("after="));
    }
    assert_eq!(seen, placed);
}
