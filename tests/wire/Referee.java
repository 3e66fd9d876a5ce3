// Reads lines "class version hex", decodes each with Apache's class, encodes it again and prints that, or what went wrong.

import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HexFormat;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.ObjectSerializationCache;

public class Referee {
    public static void main(String[] arguments) throws Exception {
        StringBuilder out = new StringBuilder();
        for (String line : Files.readAllLines(Path.of(arguments[0]))) {
            String[] words = line.split(" ", -1);
            out.append(answer(words[0], Short.parseShort(words[1]), HexFormat.of().parseHex(words[2]))).append('\n');
        }
        System.out.print(out);
    }

    private static String answer(String name, short version, byte[] data) {
        try {
            Message message = (Message) Class.forName(name).getDeclaredConstructor().newInstance();
            ByteBufferAccessor input = new ByteBufferAccessor(ByteBuffer.wrap(data));
            message.read(input, version);
            if (input.remaining() != 0) {
                return "left " + input.remaining();
            }
            ObjectSerializationCache cache = new ObjectSerializationCache();
            ByteBuffer output = ByteBuffer.allocate(message.size(cache, version));
            message.write(new ByteBufferAccessor(output), cache, version);
            return HexFormat.of().formatHex(output.array());
        } catch (Exception error) {
            return error.toString().replace('\n', ' ');
        }
    }
}
