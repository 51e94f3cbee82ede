package example;

import java.util.List;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.apache.beam.sdk.Pipeline;
import org.apache.beam.sdk.extensions.python.PythonExternalTransform;
import org.apache.beam.sdk.options.Description;
import org.apache.beam.sdk.options.PipelineOptions;
import org.apache.beam.sdk.options.PipelineOptionsFactory;
import org.apache.beam.sdk.options.Validation;
import org.apache.beam.sdk.schemas.Schema;
import org.apache.beam.sdk.transforms.Create;
import org.apache.beam.sdk.transforms.MapElements;
import org.apache.beam.sdk.values.PCollection;
import org.apache.beam.sdk.values.PCollectionTuple;
import org.apache.beam.sdk.values.Row;
import org.apache.beam.sdk.values.TypeDescriptors;

/** Prints the private n-grams of the messages of 200 customers. */
public class PrivateNgrams {
  /** The options of this program, beside those of Beam. */
  public interface Options extends PipelineOptions {
    @Description("Address of the expansion service, e.g. localhost:8097")
    @Validation.Required
    String getService();

    void setService(String service);

    @Description("File with the run key, for repeatable releases; by default a key is drawn")
    String getRunKeyFile();

    void setRunKeyFile(String file);
  }

  public static void main(String[] arguments) {
    Options options =
        PipelineOptionsFactory.fromArgs(arguments).withValidation().as(Options.class);
    Pipeline pipeline = Pipeline.create(options);
    Schema schema = Schema.builder().addStringField("customer").addStringField("message").build();
    List<Row> messages =
        IntStream.range(0, 200)
            .mapToObj(
                customer ->
                    Row.withSchema(schema).addValues("customer " + customer, "Good morning").build())
            .collect(Collectors.toList());

    PythonExternalTransform<PCollection<Row>, PCollectionTuple> ngrams =
        PythonExternalTransform.<PCollection<Row>, PCollectionTuple>from(
                "beam_dpne.yaml.PrivateNgrams", options.getService())
            .withKwarg("user_field", "customer")
            .withKwarg("text_field", "message")
            .withKwarg("epsilon", 10.0)
            .withKwarg("delta", 1e-4)
            .withKwarg("max_length", 2);
    if (options.getRunKeyFile() != null) {
      ngrams = ngrams.withKwarg("run_key_file", options.getRunKeyFile());
    }
    PCollectionTuple released =
        pipeline.apply(Create.of(messages).withRowSchema(schema)).apply(ngrams);
    PCollection<Row> rows = released.get("rows");
    rows.apply(
        MapElements.into(TypeDescriptors.voids())
            .via(
                row -> {
                  System.out.printf("%s\t%s%n", row.getString("ngram"), row.getDouble("score"));
                  return null;
                }));
    pipeline.run().waitUntilFinish();
  }
}
