// Asks for addresses over HTTP/2 by way of a proxy, as a program in Java does without further libraries.
import java.net.Authenticator;
import java.net.InetSocketAddress;
import java.net.PasswordAuthentication;
import java.net.ProxySelector;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;

public class Ask {
    public static void main(String[] arguments) throws Exception {
        var proxy = new InetSocketAddress(arguments[0], Integer.parseInt(arguments[1]));
        var client = HttpClient.newBuilder()
            .version(HttpClient.Version.HTTP_2)
            .proxy(ProxySelector.of(proxy))
            .authenticator(new Authenticator() {
                @Override
                protected PasswordAuthentication getPasswordAuthentication() {
                    return new PasswordAuthentication(arguments[2], arguments[3].toCharArray());
                }
            })
            .build();
        for (int at = 4; at < arguments.length; at++) {
            var request = HttpRequest.newBuilder(URI.create(arguments[at])).build();
            var answer = client.send(request, HttpResponse.BodyHandlers.ofString());
            System.out.println(answer.version() + " " + answer.statusCode() + " " + answer.body().strip());
        }
    }
}
