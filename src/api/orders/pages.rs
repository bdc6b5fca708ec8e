//! `GET /orders/page`: numbered pages, and keyset pages that stay in place while orders come in.
use actix_web::HttpResponse;
use actix_web::http::header::{HeaderValue, LINK};
use app::queries::{KeysetPage, NumberedPage, PAGE_MAX};
use domain::{OrderId, Status};

use super::shape::{OrderBody, OrderStatus, PageBody};
use super::{measured, status_filter};
use crate::call::{Call, ok};
use crate::error::{Envelope, Problem};
use crate::route::Answer;

const SIZE_DEFAULT: i64 = 100;

/// Page through orders
///
/// By number (`page`), or by place (`after`): a place holds still while new orders come in, a number does not.
#[utoipa::path(get, path = "/orders/page", tag = "orders", operation_id = "pageOrders", security(("bearer" = [])),
    params(
        ("status" = Option<OrderStatus>, Query, description = "Only these; empty is no filter"),
        ("page" = Option<i64>, Query, description = "From 0; below counts as 0"),
        ("size" = Option<i64>, Query, description = "Clamped to 1…500; 100 when left out"),
        ("after" = Option<String>, Query, description = "An order id: the page begins behind it. Empty: the first page"),
    ),
    responses(
        (status = 200, description = "The page, newest first", body = PageBody<'_>, headers(
            ("Link" = String, description = "RFC 8288: first, prev, next, last; a page asked for with `after` links only next"))),
        (status = 400, description = "A parameter is not valid", body = Envelope<'_>, content_type = "application/problem+json"),
    ))]
pub(crate) async fn page(call: Call) -> Answer {
    measured(&call, "page", read(&call)).await
}

async fn read(call: &Call) -> Answer {
    let query = call.query();
    let status = status_filter(&query)?;
    let page = query.integer("page")?.unwrap_or(0).max(0).unsigned_abs();
    let size = query.integer("size")?.unwrap_or(SIZE_DEFAULT).clamp(1, i64::from(PAGE_MAX)) as u32;
    let viewer = call.viewer()?;
    let after = match query.get("after")? {
        None => None,
        Some("") => Some(None),
        Some(id) => {
            let id =
                OrderId::parse(id).ok_or_else(|| Problem::field("after", "must be a hyphenated UUID, or empty"))?;
            Some(Some(id))
        }
    };
    let visit = call.state.entrances.lists.enter().await?;
    let queries = &call.state.queries;
    let answer = match after {
        None => by_number(&queries.page(&viewer, status, page, size).await?, status),
        Some(after) => by_place(&queries.page_after(&viewer, status, after, size).await?, status),
    };
    visit.end(true);
    Ok(answer)
}

fn by_number(numbered: &NumberedPage, status: Option<Status>) -> HttpResponse {
    let NumberedPage { orders, page, size, total } = numbered;
    let pages = total.div_ceil(u64::from(*size));
    let body = PageBody {
        orders: OrderBody::all(orders),
        page: Some(*page),
        size: *size,
        total_elements: *total,
        total_pages: pages,
    };
    let last = pages.saturating_sub(1);
    let link =
        |rel: &str, page: u64| format!("</orders/page?{}page={page}&size={size}>; rel=\"{rel}\"", filter(status));
    let mut links = vec![link("first", 0)];
    if *page > 0 {
        links.push(link("prev", (page - 1).min(last)));
    }
    if *page < last {
        links.push(link("next", page + 1));
    }
    links.push(link("last", last));
    linked(ok(&body), &links)
}

fn by_place(keyset: &KeysetPage, status: Option<Status>) -> HttpResponse {
    let KeysetPage { orders, size, total, next } = keyset;
    let body = PageBody {
        orders: OrderBody::all(orders),
        page: None,
        size: *size,
        total_elements: *total,
        total_pages: total.div_ceil(u64::from(*size)),
    };
    let next = next.map(|id| format!("</orders/page?{}after={id}&size={size}>; rel=\"next\"", filter(status)));
    linked(ok(&body), next.as_slice())
}

fn filter(status: Option<Status>) -> String {
    status.map_or_else(String::new, |status| format!("status={status}&"))
}

fn linked(mut answer: HttpResponse, links: &[String]) -> HttpResponse {
    if let (false, Ok(value)) = (links.is_empty(), HeaderValue::from_str(&links.join(", "))) {
        answer.headers_mut().insert(LINK, value);
    }
    answer
}
