//! The response with a list of orders: in one piece with its length when it is small, else as a stream.
use std::io;
use std::sync::Arc;

use actix_web::HttpResponse;
use actix_web::http::header::CONTENT_TYPE;
use actix_web::http::{Method, StatusCode};
use actix_web::web::Bytes;
use app::error::QueryError;
use futures::stream::{self, Stream, StreamExt};
use tokio::time::timeout;
use tracing::Instrument;

use crate::error::Problem;
use crate::orders::list_body::ListBody;
use crate::request::context::RequestContext;
use crate::request::response::{end_without_chunks, with_type};
use crate::state::HttpState;

/// Bytes from which on a list is streamed.
const WHOLE_MAX: usize = 256 * 1024;

/// The response to a GET or HEAD for a list. Errors of the store have their status until the first [`WHOLE_MAX`] bytes are read; a later
/// one ends the connection, so that the client sees an incomplete response.
pub(crate) async fn list_response(
    context: &RequestContext,
    operation: &'static str,
    mut list: ListBody,
) -> Result<HttpResponse, Problem> {
    let mut beginning = Vec::new();
    while beginning.len() < WHOLE_MAX {
        match list.next_piece().await? {
            Some(piece) => beginning.extend(piece),
            None => return Ok(with_type(StatusCode::OK, "application/json", beginning)),
        }
    }
    let mut response = HttpResponse::Ok();
    response.insert_header((CONTENT_TYPE, "application/json"));
    let mut response = if context.request.method() == Method::HEAD {
        response.streaming(stream::empty::<io::Result<Bytes>>())
    } else {
        let rest = pieces(list, Arc::clone(&context.state), operation);
        response.streaming(stream::once(async { Ok(Bytes::from(beginning)) }).chain(rest))
    };
    end_without_chunks(&context.request, &mut response);
    Ok(response)
}

/// The further pieces. The store is read when actix polls for a piece, which it does when the send buffer has space.
fn pieces(
    list: ListBody,
    state: Arc<HttpState>,
    operation: &'static str,
) -> impl Stream<Item = io::Result<Bytes>> + 'static {
    let span = tracing::Span::current();
    stream::try_unfold((list, state), move |(mut list, state)| {
        let piece = async move {
            let late = |_| Err(QueryError::Unavailable("no result within the request timeout".to_owned()));
            match timeout(state.options.request_timeout, list.next_piece()).await.unwrap_or_else(late) {
                Ok(piece) => Ok(piece.map(|piece| (piece, (list, state)))),
                Err(error) => {
                    state.metrics.orders_operation_failure_count.with([operation]).inc();
                    tracing::warn!(event = "list_interrupted", operation, %error, "a list ended before its last order");
                    Err(io::Error::other(error))
                }
            }
        };
        piece.instrument(span.clone())
    })
}
