import java.net.URI;
import java.sql.DriverManager;
import java.util.Properties;

/** A customer moves: the table and the event change together, or neither does. */
public class Publish {
    public static void main(String[] arguments) throws Exception {
        var url = URI.create(arguments[0]);
        var properties = new Properties();
        if (url.getUserInfo() != null) {
            var user = url.getUserInfo().split(":", 2);
            properties.setProperty("user", user[0]);
            if (user.length > 1) properties.setProperty("password", user[1]);
        }
        var address = "jdbc:postgresql://" + url.getHost() + ":" + (url.getPort() < 0 ? 5432 : url.getPort()) + url.getPath();
        try (var connection = DriverManager.getConnection(address, properties)) {
            connection.setAutoCommit(false); // close() without commit() rolls back
            try (var create = connection.createStatement()) {
                create.execute("CREATE TABLE IF NOT EXISTS customer (id text PRIMARY KEY, street text NOT NULL)");
            }
            var change = "INSERT INTO customer VALUES (?, ?) ON CONFLICT (id) DO UPDATE SET street = excluded.street";
            try (var statement = connection.prepareStatement(change)) {
                statement.setString(1, "java-1");
                statement.setString(2, "Main Street 12");
                statement.executeUpdate();
            }
            var publish = "SELECT posthaste.publish(?::text, ?::text, ?::text, ?::jsonb, headers => ?::jsonb)";
            try (var statement = connection.prepareStatement(publish)) {
                statement.setString(1, "customers");
                statement.setString(2, "java-1");
                statement.setString(3, "CustomerMoved");
                statement.setString(4, "{\"customer\": \"java-1\"}");
                statement.setString(5, "{\"tenant\": \"blue\"}");
                try (var result = statement.executeQuery()) {
                    result.next();
                    System.out.println("published " + result.getObject(1));
                }
            }
            connection.commit();
        }
    }
}
