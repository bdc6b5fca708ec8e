//! A client's connection to the instances: one attempt of a request, and another instance after each failure.
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::instances::Addresses;
use super::progress::Progress;
use crate::error::Error;
use crate::load::client::{HttpConnection, HttpResponse};

/// A request without a response is repeated after this time, on another instance where there is one.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(3);
/// Between two attempts of a request.
pub(super) const RETRY_INTERVAL: Duration = Duration::from_millis(50);

/// A connection that is opened by the first attempt, and again after a failure.
pub(super) struct RetryingConnection {
    token: String,
    addresses: Addresses,
    progress: Rc<RefCell<Progress>>,
    connection: Option<HttpConnection>,
    /// Selects the instance; another one after each failure.
    attempt: usize,
}

impl RetryingConnection {
    /// A connection whose first attempt goes to the instance with this number, modulo the number of instances.
    pub(super) fn new(token: String, addresses: Addresses, progress: Rc<RefCell<Progress>>, attempt: usize) -> Self {
        Self { token, addresses, progress, connection: None, attempt }
    }

    /// Sends a request once, to one instance; `None` where it did not respond.
    pub(super) async fn attempt(
        &mut self,
        method: &str,
        path: &str,
        head: &str,
        body: Option<&str>,
    ) -> Option<HttpResponse> {
        let answered = timeout(RESPONSE_TIMEOUT, self.send(method, path, head, body)).await;
        match answered {
            Ok(Ok(response)) => {
                if response.status < 300 {
                    self.progress.borrow_mut().record_success();
                }
                Some(response)
            }
            _ => {
                (self.connection, self.attempt) = (None, self.attempt + 1);
                sleep(RETRY_INTERVAL).await;
                None
            }
        }
    }

    async fn send(&mut self, method: &str, path: &str, head: &str, body: Option<&str>) -> Result<HttpResponse, Error> {
        if self.connection.is_none() {
            let address = self.addresses.get(self.attempt).ok_or_else(|| Error::new("the instance is down"))?;
            self.connection = Some(HttpConnection::connect(address).await?);
        }
        // Taken out while it is used: a request that was cut off leaves a response behind that belongs to no later request.
        let mut connection = self.connection.take().ok_or_else(|| Error::new("not connected"))?;
        let response = connection.send_with(method, path, &self.token, head, body).await?;
        self.connection = Some(connection);
        Ok(response)
    }
}

/// Whether no fault explains the status: 4xx other than a conflict, a timeout and a rate limit.
pub(super) fn is_permanent_refusal(status: u16) -> bool {
    (400..500).contains(&status) && !matches!(status, 408 | 409 | 429)
}

/// The error of a response that ends the run.
pub(super) fn unexpected_response(request: &str, response: &HttpResponse) -> Error {
    let body = String::from_utf8_lossy(&response.body);
    Error::new(format!("{request} was answered {}, which no fault explains: {body}", response.status))
}
