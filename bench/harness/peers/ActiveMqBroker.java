import java.io.File;
import org.apache.activemq.broker.BrokerService;
import org.apache.activemq.store.kahadb.KahaDBPersistenceAdapter;

/** ActiveMqBroker DIRECTORY PORT: persistent, KahaDB, flushed now and then, as the paper set it up. */
public class ActiveMqBroker {
    public static void main(String[] arguments) throws Exception {
        KahaDBPersistenceAdapter store = new KahaDBPersistenceAdapter();
        store.setDirectory(new File(arguments[0]));
        store.setJournalDiskSyncStrategy("periodic");
        BrokerService broker = new BrokerService();
        broker.setPersistenceAdapter(store);
        broker.setUseJmx(false);
        broker.getSystemUsage().getStoreUsage().setLimit(20L << 30);
        broker.getSystemUsage().getTempUsage().setLimit(1L << 30);
        broker.addConnector("tcp://127.0.0.1:" + arguments[1]);
        broker.start();
        broker.waitUntilStopped();
    }
}
