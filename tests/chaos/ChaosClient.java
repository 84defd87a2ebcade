import java.io.BufferedWriter;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Apache Kafka's own producer, or a member of a group, until SIGTERM; writes the history that history.py describes.
 *
 * <p>produce NAME BOOTSTRAP FILE RATE TIMEOUT_S TOPIC:PARTITIONS:KEYS:BYTES...
 *
 * <p>read MEMBER GROUP BOOTSTRAP FILE TOPIC...
 */
public final class ChaosClient {
  private static final int WAITING_PER_PARTITION = 400;
  private static final long TICK_MS = 20;
  private static final long COMMIT_EVERY_MS = 1_000;

  private static volatile boolean ended = false;
  private static volatile boolean isWritten = false;
  private final BufferedWriter file;
  private final Map<String, Integer> valueBytes = new HashMap<>();

  private ChaosClient(Path path) throws IOException {
    file = Files.newBufferedWriter(path, StandardCharsets.UTF_8);
  }

  public static void main(String[] arguments) throws Exception {
    Thread work = Thread.currentThread();
    Runtime.getRuntime()
        .addShutdownHook(
            new Thread(
                () -> {
                  ended = true;
                  try {
                    work.join();
                    // By itself it would end with the signal's number, whether the history is whole or not.
                    Runtime.getRuntime().halt(isWritten ? 0 : 1);
                  } catch (InterruptedException error) {
                    Thread.currentThread().interrupt();
                  }
                }));
    String[] rest = Arrays.copyOfRange(arguments, 1, arguments.length);
    if (arguments[0].equals("produce")) {
      new ChaosClient(Path.of(rest[2])).produce(rest);
    } else {
      new ChaosClient(Path.of(rest[3])).read(rest);
    }
  }

  /** CLOCK_MONOTONIC, as all clients of a run have it. */
  private static long nowMs() {
    return System.nanoTime() / 1_000_000;
  }

  private synchronized void write(Object... fields) {
    try {
      for (int index = 0; index < fields.length; index++) {
        file.write((index == 0 ? "" : "\t") + fields[index]);
      }
      file.write("\n");
    } catch (IOException error) {
      throw new IllegalStateException(error);
    }
  }

  private void produce(String[] arguments) throws Exception {
    int rate = Integer.parseInt(arguments[3]);
    Properties settings = new Properties();
    settings.put(ProducerConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[1]);
    settings.put(ProducerConfig.ACKS_CONFIG, "all");
    settings.put(ProducerConfig.ENABLE_IDEMPOTENCE_CONFIG, "true");
    settings.put(ProducerConfig.LINGER_MS_CONFIG, "5");
    settings.put(ProducerConfig.REQUEST_TIMEOUT_MS_CONFIG, "6000");
    settings.put(ProducerConfig.DELIVERY_TIMEOUT_MS_CONFIG, 1000 * Integer.parseInt(arguments[4]));
    settings.put(ProducerConfig.METADATA_MAX_AGE_CONFIG, "10000");
    settings.put(ProducerConfig.KEY_SERIALIZER_CLASS_CONFIG, ByteArraySerializer.class);
    settings.put(ProducerConfig.VALUE_SERIALIZER_CLASS_CONFIG, ByteArraySerializer.class);
    List<TopicPartition> partitions = new ArrayList<>();
    for (String spec : Arrays.copyOfRange(arguments, 5, arguments.length)) {
      String[] parts = spec.split(":");
      valueBytes.put(parts[0], Integer.parseInt(parts[3]));
      for (int number = 0; number < Integer.parseInt(parts[1]); number++) {
        partitions.add(new TopicPartition(parts[0], number));
      }
    }
    // A producer that met a fatal error is followed by another one, which counts anew.
    for (int incarnation = 1; !ended; incarnation++) {
      produceAs(arguments[0] + "." + incarnation, settings, partitions, rate);
    }
    file.close();
    isWritten = true;
  }

  private void produceAs(String name, Properties settings, List<TopicPartition> partitions, int rate) throws Exception {
    Map<TopicPartition, AtomicInteger> waiting = new HashMap<>();
    Map<TopicPartition, Integer> next = new HashMap<>();
    for (TopicPartition partition : partitions) {
      waiting.put(partition, new AtomicInteger());
      next.put(partition, 0);
    }
    long beganMs = nowMs();
    long sent = 0;
    try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(settings)) {
      while (!ended) {
        while (sent < (nowMs() - beganMs) * rate / 1000 && !ended) {
          for (TopicPartition partition : partitions) {
            if (waiting.get(partition).get() < WAITING_PER_PARTITION) {
              int number = next.merge(partition, 1, Integer::sum) - 1;
              send(producer, partition, name, number, waiting.get(partition));
            }
          }
          sent += partitions.size();
        }
        Thread.sleep(TICK_MS);
      }
    } catch (KafkaException error) {
      System.err.println(nowMs() + " " + name + ": " + error);
    }
  }

  private static byte[] value(String told, int size) {
    byte[] value = told.getBytes(StandardCharsets.UTF_8);
    if (value.length + 1 >= size) {
      return value;
    }
    byte[] filled = Arrays.copyOf(value, size);
    Arrays.fill(filled, value.length, size, (byte) 'x');
    filled[value.length] = ' ';
    return filled;
  }

  private void send(
      KafkaProducer<byte[], byte[]> producer, TopicPartition partition, String name, int number, AtomicInteger waiting) {
    long sentMs = nowMs();
    byte[] value = value(name + " " + number, valueBytes.get(partition.topic()));
    waiting.incrementAndGet();
    producer.send(
        new ProducerRecord<>(partition.topic(), partition.partition(), null, value),
        (metadata, error) -> {
          waiting.decrementAndGet();
          String topic = partition.topic();
          if (error == null) {
            write("a", sentMs, nowMs(), topic, partition.partition(), name, number, metadata.offset());
          } else {
            String kind = error.getClass().getSimpleName();
            write("f", sentMs, nowMs(), topic, partition.partition(), name, number, kind);
          }
        });
  }

  private void read(String[] arguments) throws Exception {
    Properties settings = new Properties();
    settings.put(ConsumerConfig.GROUP_ID_CONFIG, arguments[1]);
    settings.put(ConsumerConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[2]);
    settings.put(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG, "earliest");
    settings.put(ConsumerConfig.ENABLE_AUTO_COMMIT_CONFIG, "false");
    settings.put(ConsumerConfig.SESSION_TIMEOUT_MS_CONFIG, "10000");
    settings.put(ConsumerConfig.HEARTBEAT_INTERVAL_MS_CONFIG, "2000");
    settings.put(ConsumerConfig.REQUEST_TIMEOUT_MS_CONFIG, "6000");
    settings.put(ConsumerConfig.METADATA_MAX_AGE_CONFIG, "10000");
    settings.put(ConsumerConfig.KEY_DESERIALIZER_CLASS_CONFIG, ByteArrayDeserializer.class);
    settings.put(ConsumerConfig.VALUE_DESERIALIZER_CLASS_CONFIG, ByteArrayDeserializer.class);
    Map<TopicPartition, OffsetAndMetadata> next = new HashMap<>();
    try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings)) {
      consumer.subscribe(
          Arrays.asList(arguments).subList(4, arguments.length),
          new ConsumerRebalanceListener() {
            @Override
            public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
              partitions.forEach(one -> write("e", nowMs(), one.topic(), one.partition()));
              next.keySet().removeAll(partitions);
            }

            @Override
            public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
              partitions.forEach(one -> write("b", nowMs(), one.topic(), one.partition()));
            }
          });
      long committedMs = nowMs();
      while (!ended) {
        for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(200))) {
          String[] value = new String(record.value(), StandardCharsets.UTF_8).split(" ");
          write("p", nowMs(), record.topic(), record.partition(), record.offset(), value[0], value[1]);
          TopicPartition partition = new TopicPartition(record.topic(), record.partition());
          next.put(partition, new OffsetAndMetadata(record.offset() + 1));
        }
        if (nowMs() - committedMs > COMMIT_EVERY_MS) {
          commit(consumer, next);
          committedMs = nowMs();
        }
      }
      commit(consumer, next);
    }
    file.close();
    isWritten = true;
  }

  private void commit(KafkaConsumer<byte[], byte[]> consumer, Map<TopicPartition, OffsetAndMetadata> next) {
    if (next.isEmpty()) {
      return;
    }
    Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>(next);
    try {
      consumer.commitSync(offsets, Duration.ofSeconds(10));
    } catch (KafkaException error) {
      System.err.println(nowMs() + " commit: " + error);
      return;
    }
    offsets.forEach((one, at) -> write("c", nowMs(), one.topic(), one.partition(), at.offset()));
  }
}
