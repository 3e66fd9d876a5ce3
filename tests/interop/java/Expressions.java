import com.google.re2j.Pattern;
import com.google.re2j.PatternSyntaxException;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;

/**
 * RE2J, with which Apache's group coordinator reads topic expressions. The arguments are names; each line of the input is
 * an expression in hexadecimal UTF-8. A line of the output is "refused", or for each name 1 if all of it matches, else 0.
 */
public final class Expressions {
    private Expressions() {}

    public static void main(String[] names) throws IOException {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            System.out.println(read(new String(HexFormat.of().parseHex(line), StandardCharsets.UTF_8), names));
        }
    }

    private static String read(String text, String[] names) {
        StringBuilder said = new StringBuilder();
        try {
            Pattern pattern = Pattern.compile(text);
            for (String name : names) {
                said.append(pattern.matcher(name).matches() ? '1' : '0');
            }
        } catch (PatternSyntaxException e) {
            return "refused";
        }
        return said.toString();
    }
}
