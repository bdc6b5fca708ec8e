//! `GET /orders/page`: numbered pages, and keyset pages that stay stable while orders are created.
use actix_web::HttpResponse;
use actix_web::http::header::{HeaderValue, LINK};
use app::queries::{KeysetPage, NumberedPage, PAGE_MAX};
use domain::{OrderId, Status};

use crate::error::{Problem, ProblemBody};
use crate::openapi::schemas::{AnyInteger, OrderStatusFilter, UuidFilter};
use crate::orders::bodies::PageBody;
use crate::orders::list_body::ListBody;
use crate::orders::list_response::list_response;
use crate::orders::operation::measured;
use crate::orders::parameters::status_filter;
use crate::request::context::RequestContext;
use crate::request::response::RouteResult;

const SIZE_DEFAULT: i64 = 100;

/// Page through the orders
///
/// By page number (`page`), or by keyset (`after`), which stays stable while orders are created. A keyset page of large orders may have
/// fewer than `size`; its link to the next page counts.
#[utoipa::path(get, path = "/orders/page", tag = "orders", operation_id = "pageOrders", security(("bearer" = [])),
    params(
        ("status" = inline(Option<OrderStatusFilter>), Query, description = "Only orders with this status; empty means no filter"),
        ("page" = inline(Option<AnyInteger>), Query, description = "From 0; negative numbers count as 0"),
        ("size" = inline(Option<AnyInteger>), Query, description = "Clamped to 1…500; 100 when left out"),
        ("after" = inline(Option<UuidFilter>), Query, description = "An order id: the page starts after it. Empty: the first page"),
    ),
    responses(
        (status = 200, description = "The page, newest first", body = PageBody<'_>, headers(
            ("Link" = String, description = "RFC 8288: first, prev, next, last; a keyset page links only next"))),
        (status = 400, description = "A parameter is not valid", body = ProblemBody<'_>, content_type = "application/problem+json"),
    ))]
pub(crate) async fn page(context: RequestContext) -> RouteResult {
    measured(&context, "page", read_page(&context)).await
}

async fn read_page(context: &RequestContext) -> RouteResult {
    let query = context.query();
    let status = status_filter(&query)?;
    let page = query.integer("page")?.unwrap_or(0).max(0).unsigned_abs();
    let size = query.integer("size")?.unwrap_or(SIZE_DEFAULT).clamp(1, i64::from(PAGE_MAX)) as u32;
    let viewer = context.viewer()?;
    let after = match query.get("after")? {
        None => None,
        Some("") => Some(None),
        Some(id) => {
            let id =
                OrderId::parse(id).ok_or_else(|| Problem::field("after", "must be a hyphenated UUID, or empty"))?;
            Some(Some(id))
        }
    };
    let permit = context.state.concurrency_limiters.lists.acquire().await?;
    let queries = &context.state.queries;
    let (list, links) = match after {
        None => numbered_page(queries.page(&viewer, status, page, size).await?, status),
        Some(after) => keyset_page(queries.page_after(&viewer, status, after, size).await?, status),
    };
    let response = list_response(context, "page", list).await?;
    permit.release(true);
    Ok(with_links(response, &links))
}

/// The page and its links.
fn numbered_page(numbered: NumberedPage, status: Option<Status>) -> (ListBody, Vec<String>) {
    let NumberedPage { orders, page, size, total } = numbered;
    let pages = total.div_ceil(u64::from(size));
    let frame = PageBody { orders: Vec::new(), page: Some(page), size, total_elements: total, total_pages: pages };
    let last = pages.saturating_sub(1);
    let link = |rel: &str, page: u64| {
        format!("</orders/page?{}page={page}&size={size}>; rel=\"{rel}\"", status_parameter(status))
    };
    let mut links = vec![link("first", 0)];
    if page > 0 {
        links.push(link("prev", (page - 1).min(last)));
    }
    if page < last {
        links.push(link("next", page + 1));
    }
    links.push(link("last", last));
    (ListBody::page(&frame, Some(orders), Vec::new()), links)
}

/// The page and its link to the next one.
fn keyset_page(keyset: KeysetPage, status: Option<Status>) -> (ListBody, Vec<String>) {
    let KeysetPage { orders, size, total, next } = keyset;
    let total_pages = total.div_ceil(u64::from(size));
    let frame = PageBody { orders: Vec::new(), page: None, size, total_elements: total, total_pages };
    let next =
        next.map(|id| format!("</orders/page?{}after={id}&size={size}>; rel=\"next\"", status_parameter(status)));
    (ListBody::page(&frame, None, orders), next.into_iter().collect())
}

fn status_parameter(status: Option<Status>) -> String {
    status.map_or_else(String::new, |status| format!("status={status}&"))
}

fn with_links(mut response: HttpResponse, links: &[String]) -> HttpResponse {
    if let (false, Ok(value)) = (links.is_empty(), HeaderValue::from_str(&links.join(", "))) {
        response.headers_mut().insert(LINK, value);
    }
    response
}
