//! A service of your own in Rust, with its own table: `PUT /customers/{id}/street` changes a row and publishes an event in one transaction.
use actix_web::dev::Server;
use actix_web::error::{ErrorBadRequest, ErrorInternalServerError, ErrorServiceUnavailable};
use actix_web::{App, HttpResponse, HttpServer, web};
use deadpool_postgres::{Manager, Pool};
use postgres::{NewEvent, PublishError, publish};
use tokio_postgres::NoTls;

const TABLE: &str = "CREATE TABLE IF NOT EXISTS customer (id text PRIMARY KEY, street text NOT NULL)";
const MOVE: &str = "INSERT INTO customer VALUES ($1, $2) ON CONFLICT (id) DO UPDATE SET street = excluded.street";

/// The service, and the port on which it listens.
pub async fn start(database: &str) -> Result<(Server, u16), Box<dyn std::error::Error>> {
    let pool = Pool::builder(Manager::new(database.parse()?, NoTls)).max_size(4).build()?;
    pool.get().await?.batch_execute(TABLE).await?;
    let pool = web::Data::new(pool);
    let app = move || App::new().app_data(pool.clone()).route("/customers/{id}/street", web::put().to(move_customer));
    let server = HttpServer::new(app).workers(1).bind(("127.0.0.1", 0))?;
    let port = server.addrs()[0].port();
    Ok((server.run(), port))
}

async fn move_customer(
    pool: web::Data<Pool>,
    id: web::Path<String>,
    street: String,
) -> actix_web::Result<HttpResponse> {
    let mut client = pool.get().await.map_err(ErrorServiceUnavailable)?;
    let transaction = client.transaction().await.map_err(ErrorInternalServerError)?;
    transaction.execute(MOVE, &[&*id, &street]).await.map_err(ErrorInternalServerError)?;
    let payload = serde_json::json!({"customer": &*id, "street": street}).to_string();
    let event = NewEvent::new("customers", &id, "CustomerMoved", payload.as_bytes()).header("tenant", "blue");
    let published = publish(&transaction, &event).await;
    // Dropping the transaction rolls it back: without its event the change does not happen either.
    let event_id = published.map_err(|error| match error {
        PublishError::Refused(reason) => ErrorBadRequest(reason),
        other => ErrorInternalServerError(other),
    })?;
    transaction.commit().await.map_err(ErrorInternalServerError)?;
    Ok(HttpResponse::Ok().body(event_id.to_string()))
}
