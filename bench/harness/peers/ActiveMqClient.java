import javax.jms.BytesMessage;
import javax.jms.Connection;
import javax.jms.DeliveryMode;
import javax.jms.MessageConsumer;
import javax.jms.MessageProducer;
import javax.jms.Queue;
import javax.jms.Session;
import org.apache.activemq.ActiveMQConnectionFactory;

/**
 * ActiveMqClient HOST:PORT QUEUE produce|consume COUNT SIZE BATCH ACKS: prints rate=MESSAGES_PER_SECOND.
 *
 * A batch of more than one is a transaction; ACKS=0 sends without waiting for the broker's answer.
 */
public class ActiveMqClient {
    static final long PATIENCE_MS = 30_000;

    public static void main(String[] arguments) throws Exception {
        int count = Integer.parseInt(arguments[3]);
        int size = Integer.parseInt(arguments[4]);
        int batch = Integer.parseInt(arguments[5]);
        boolean waits = !arguments[6].equals("0");
        boolean transacted = batch > 1;
        String options = waits ? "?jms.alwaysSyncSend=true" : "?jms.useAsyncSend=true";
        Connection connection =
            new ActiveMQConnectionFactory("tcp://" + arguments[0] + (transacted ? "" : options)).createConnection();
        connection.start();
        int acknowledgement = transacted ? Session.SESSION_TRANSACTED : Session.DUPS_OK_ACKNOWLEDGE;
        Session session = connection.createSession(transacted, acknowledgement);
        Queue queue = session.createQueue(arguments[1]);
        long began = System.nanoTime();
        if (arguments[2].equals("produce")) {
            MessageProducer producer = session.createProducer(queue);
            producer.setDeliveryMode(DeliveryMode.PERSISTENT);
            byte[] body = new byte[size];
            for (int number = 1; number <= count; number++) {
                BytesMessage message = session.createBytesMessage();
                message.writeBytes(body);
                producer.send(message);
                if (transacted && (number % batch == 0 || number == count)) session.commit();
            }
        } else {
            MessageConsumer consumer = session.createConsumer(queue);
            for (int number = 1; number <= count; number++) {
                if (consumer.receive(PATIENCE_MS) == null) {
                    System.err.println("only " + (number - 1) + " of " + count + " messages came");
                    System.exit(1);
                }
                if (number == 1) began = System.nanoTime();
                if (transacted && (number % batch == 0 || number == count)) session.commit();
            }
        }
        double seconds = (System.nanoTime() - began) / 1e9;
        connection.close();
        System.out.printf("rate=%.0f%n", count / seconds);
    }
}
