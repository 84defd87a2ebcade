import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Apache Kafka's own transactional producer and its reader of committed records, told what to do line by line.
 *
 * <p>Each line, words with spaces between, is answered by one: "ok WORD...", or "error CLASS MESSAGE".
 *
 * <pre>
 *   NAME init TRANSACTIONAL_ID              NAME begin | commit | abort | close
 *   NAME send TOPIC PARTITION VALUE         waits for the broker's answer
 *   NAME copy GROUP SOURCE TARGET           all that the group has not read, into the open transaction; how many
 *   - read TOPIC                            the values that are committed
 * </pre>
 */
public final class TransactionClient {
  private static final Duration POLL = Duration.ofMillis(200);
  private final String bootstrap;
  private final Map<String, KafkaProducer<String, String>> producers = new HashMap<>();

  private TransactionClient(String bootstrap) {
    this.bootstrap = bootstrap;
  }

  public static void main(String[] arguments) throws Exception {
    TransactionClient client = new TransactionClient(arguments[0]);
    BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = lines.readLine(); line != null; line = lines.readLine()) {
      String answer;
      try {
        answer = "ok " + client.carryOut(line.split(" "));
      } catch (Exception error) {
        Throwable cause = error instanceof java.util.concurrent.ExecutionException ? error.getCause() : error;
        answer = "error " + cause.getClass().getSimpleName() + " " + cause.getMessage();
      }
      System.out.println(answer.replace("\n", " "));
      System.out.flush();
    }
    Runtime.getRuntime().halt(0);
  }

  private String carryOut(String[] words) throws Exception {
    if (words[1].equals("read")) {
      return String.join(" ", read(words[2]));
    }
    if (words[1].equals("init")) {
      KafkaProducer<String, String> made = producer(words[2]);
      producers.put(words[0], made);
      made.initTransactions();
      return "";
    }
    KafkaProducer<String, String> producer = producers.get(words[0]);
    switch (words[1]) {
      case "begin":
        producer.beginTransaction();
        return "";
      case "send":
        producer.send(new ProducerRecord<>(words[2], Integer.valueOf(words[3]), null, words[4])).get();
        return "";
      case "copy":
        return Integer.toString(copy(producer, words[2], words[3], words[4]));
      case "commit":
        producer.commitTransaction();
        return "";
      case "abort":
        producer.abortTransaction();
        return "";
      case "close":
        producer.close(Duration.ZERO);
        return "";
      default:
        throw new IllegalArgumentException(words[1]);
    }
  }

  private KafkaProducer<String, String> producer(String transactionalId) {
    Properties settings = new Properties();
    settings.put("bootstrap.servers", bootstrap);
    settings.put("transactional.id", transactionalId);
    settings.put("max.block.ms", "30000");
    return new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
  }

  private KafkaConsumer<String, String> consumer(String group) {
    Properties settings = new Properties();
    settings.put("bootstrap.servers", bootstrap);
    settings.put("isolation.level", "read_committed");
    settings.put("auto.offset.reset", "earliest");
    settings.put("enable.auto.commit", "false");
    if (group != null) {
      settings.put("group.id", group);
    }
    return new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
  }

  private int copy(KafkaProducer<String, String> producer, String group, String source, String target)
      throws Exception {
    try (KafkaConsumer<String, String> consumer = consumer(group)) {
      consumer.subscribe(List.of(source));
      List<Future<?>> sent = new ArrayList<>();
      do {
        for (ConsumerRecord<String, String> record : consumer.poll(POLL)) {
          sent.add(producer.send(new ProducerRecord<>(target, record.partition(), null, record.value())));
        }
      } while (consumer.assignment().isEmpty() || !isAtEnd(consumer, consumer.assignment()));
      for (Future<?> one : sent) {
        one.get();
      }
      Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
      for (TopicPartition partition : consumer.assignment()) {
        offsets.put(partition, new OffsetAndMetadata(consumer.position(partition)));
      }
      producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
      return sent.size();
    }
  }

  private List<String> read(String topic) {
    try (KafkaConsumer<String, String> consumer = consumer(null)) {
      List<TopicPartition> partitions = new ArrayList<>();
      for (PartitionInfo one : consumer.partitionsFor(topic)) {
        partitions.add(new TopicPartition(topic, one.partition()));
      }
      consumer.assign(partitions);
      consumer.seekToBeginning(partitions);
      List<String> values = new ArrayList<>();
      while (!isAtEnd(consumer, partitions)) {
        for (ConsumerRecord<String, String> record : consumer.poll(POLL)) {
          values.add(record.value());
        }
      }
      return values;
    }
  }

  private static boolean isAtEnd(KafkaConsumer<?, ?> consumer, Collection<TopicPartition> partitions) {
    // Of a reader of committed records the end is the last stable offset.
    Map<TopicPartition, Long> ends = consumer.endOffsets(partitions);
    return partitions.stream().allMatch(one -> consumer.position(one) >= ends.get(one));
  }
}
