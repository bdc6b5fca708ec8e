//! Starts the service on a database that `posthaste migrate up` has prepared, and prints what to try.
//! Run it: `cargo run -p posthaste-postgres --example customer_service postgres://user@localhost/shop`.
#![allow(clippy::print_stdout, reason = "an example shows what happens")]
mod customer_service;

#[actix_web::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let database = std::env::args().nth(1).ok_or("the URL of a database is missing")?;
    let (server, port) = customer_service::start(&database).await?;
    println!("try: curl -X PUT -d 'Main Street 12' http://127.0.0.1:{port}/customers/7/street");
    Ok(server.await?)
}
